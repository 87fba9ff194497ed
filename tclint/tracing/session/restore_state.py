"""A caller's own model, traced in the caller's process and left bit for bit as it was."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from tclint.tracing.session.weights import is_lazy
from tclint.tracing.values.layers import is_module

_MAX_OBJECTS = 200_000
"""A model that refers to a whole data set or trainer is followed this far."""
_MAX_COPIED_BYTES = 1 << 28
"""Arrays and tensors whose copy takes memory at once are copied up to this size."""
_PLAIN_DATA = ("argparse", "collections", "types")
"""Modules of the standard library whose objects hold attributes and nothing else."""
_SLOTS = ("_parameters", "_buffers")

_ABSENT = object()

Undo = Callable[[], None]


@contextlib.contextmanager
def left_as_it_was(*roots: Any) -> Iterator[None]:
    """Undo on exit what the block does to these values, and to all that they refer to.

    That is: attributes and classes of modules and other objects, what lists, dicts, sets and closures hold,
    values and `.grad` of tensors, states of generators. Weights in their modules' slots are not looked at:
    a run puts others in their places.
    """
    undo = _Snapshot(roots).undo
    try:
        yield
    finally:
        for step in reversed(undo):
            step()


@contextlib.contextmanager
def random_states_as_they_were() -> Iterator[None]:
    """Undo on exit what the block does to the random states of torch, Python and NumPy."""
    undo = _random_states()
    try:
        yield
    finally:
        for step in undo:
            step()


def _random_states() -> list[Undo]:
    undo: list[Undo] = [
        functools.partial(torch.set_rng_state, torch.get_rng_state()),
        functools.partial(random.setstate, random.getstate()),
    ]
    if torch.cuda.is_initialized():
        undo.append(functools.partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        undo.append(functools.partial(numpy.random.set_state, numpy.random.get_state()))
    return undo


class _Snapshot:
    """How to bring back everything that can be reached from some values."""

    def __init__(self, roots: tuple[Any, ...]) -> None:
        self.undo: list[Undo] = []
        self._seen: dict[int, Any] = {}  # the objects stay alive, so that no other gets their ids
        self._waiting: list[Any] = list(roots)
        self._lazy: dict[Any, Any] = {}
        while self._waiting and len(self._seen) < _MAX_OBJECTS:
            value = self._waiting.pop()
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                self._note(value)

    def _note(self, value: Any) -> None:
        kind = type(value)
        if kind in (int, float, str, bool, bytes, complex, type(None)) or issubclass(kind, type):
            return
        if issubclass(kind, torch.Tensor):
            self._note_tensor(value)
        elif is_module(value):
            self._note_module(value)
        elif issubclass(kind, dict):
            self._note_dict(value, _base_of(value))
        elif issubclass(kind, list):
            self._note_items(value, list(list.__iter__(value)), _refill_list)
        elif issubclass(kind, set):
            self._note_items(value, list(set.__iter__(value)), _refill_set)
        elif issubclass(kind, deque):
            self._note_items(value, list(value), _refill_deque)
        elif issubclass(kind, tuple):
            self._waiting += tuple.__iter__(value)
        elif kind is torch.Generator:
            self.undo.append(functools.partial(value.set_state, value.get_state()))
        elif kind is FunctionType:
            self._waiting += [
                value.__closure__ or (),
                value.__defaults__,
                value.__kwdefaults__,
                value.__dict__,
            ]
        elif kind is MethodType:
            self._waiting += (value.__self__, value.__func__)
        elif kind is CellType:
            self._note_cell(value)
        elif issubclass(kind, functools.partial):
            self._waiting += (value.func, value.args, value.keywords, value.__dict__)
        else:
            self._note_object(value, kind)

    def _note_module(self, module: nn.Module) -> None:
        attributes = module.__dict__
        kind = type(module)

        def set_class() -> None:
            if type(module) is not kind:  # a lazy module becomes another when it first runs
                object.__setattr__(module, "__class__", kind)

        self.undo.append(set_class)
        if isinstance(module, torch.jit.ScriptModule):  # its mode is no attribute of Python's
            self.undo.append(functools.partial(setattr, module, "training", module.training))
        # A tensor in a slot is exchanged for the run, and so are others by which a lazy one is known.
        before = dict(attributes)
        self.undo.append(functools.partial(_refill_dict, attributes, before, dict))
        for name, item in before.items():
            if name in _SLOTS and issubclass(type(item), dict):
                self._seen[id(item)] = item
                # A dict in newer versions, an OrderedDict in older ones (2.4).
                self.undo.append(functools.partial(_refill_dict, item, dict(item), _base_of(item)))
                for slot, tensor in item.items():
                    if tensor is not None and is_lazy(tensor):
                        item[slot] = self._stand_in_of_lazy(tensor)
            else:
                self._waiting.append(item)

    def _stand_in_of_lazy(self, tensor: Any) -> Any:
        """It takes its shape in place, wherever it is referred to."""
        if id(tensor) not in self._lazy:
            made = type(tensor)(requires_grad=tensor.requires_grad, device=tensor.device, dtype=tensor.dtype)
            made.__dict__.update(tensor.__dict__)
            self._lazy[id(tensor)] = made
        return self._lazy[id(tensor)]

    def _note_dict(self, value: dict[Any, Any], base: type[dict[Any, Any]]) -> None:
        before = dict(base.items(value))
        self._waiting += before.values()
        self.undo.append(functools.partial(_refill_dict, value, before, base))

    def _note_items(self, value: Any, before: list[Any], refill: Callable[[Any, list[Any]], None]) -> None:
        self._waiting += before
        self.undo.append(functools.partial(refill, value, before))

    def _note_cell(self, cell: Any) -> None:
        try:
            before = cell.cell_contents
        except ValueError:  # empty
            return
        self._waiting.append(before)

        def refill() -> None:
            cell.cell_contents = before

        self.undo.append(refill)

    def _note_tensor(self, tensor: torch.Tensor) -> None:
        requires_grad, gradient = tensor.requires_grad, None if is_lazy(tensor) else _gradient(tensor)
        saved = _copied(tensor)
        original, place = (tensor.detach(), _place(tensor)) if saved is not None else (tensor, ())
        attributes = dict(tensor.__dict__)

        def bring_back() -> None:
            _refill_dict(tensor.__dict__, attributes, dict)
            if tensor.is_leaf and tensor.requires_grad != requires_grad:
                tensor.requires_grad_(requires_grad)
            if saved is not None:
                _become_again(tensor, original, place)
                if not _same_bits(tensor, saved):
                    tensor.data.copy_(saved)  # .data counts no version: a graph that saved the tensor holds
            if not is_lazy(tensor) and _gradient(tensor) is not gradient:
                tensor.grad = gradient

        self.undo.append(bring_back)
        if gradient is not None:
            self._waiting.append(gradient)

    def _note_object(self, value: Any, kind: type) -> None:
        top = kind.__module__.partition(".")[0] if isinstance(kind.__module__, str) else ""
        if top == "numpy":
            self._note_numpy(value)
            return
        if isinstance(value, random.Random):
            self.undo.append(functools.partial(value.setstate, value.getstate()))
            return
        if top in sys.stdlib_module_names and top not in _PLAIN_DATA:
            return  # threads, locks, files, loggers: others use them meanwhile
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict:
            before = dict(attributes)
            self._waiting += before.values()
            self.undo.append(functools.partial(_refill_dict, attributes, before, dict))
        for name in _slot_names(kind):
            item = _slot(value, name)
            self._waiting.append(item)
            self.undo.append(functools.partial(_refill_slot, value, name, item))

    def _note_numpy(self, value: Any) -> None:
        import numpy as np

        if isinstance(value, np.ndarray):
            if value.dtype.hasobject or value.nbytes > _MAX_COPIED_BYTES or not value.flags.writeable:
                return
            saved = value.copy()

            def bring_back() -> None:
                if value.shape == saved.shape and value.tobytes() != saved.tobytes():
                    np.copyto(value, saved)

            self.undo.append(bring_back)
        elif isinstance(value, np.random.RandomState):
            self.undo.append(functools.partial(value.set_state, value.get_state()))
        elif isinstance(value, np.random.Generator):
            source, state = value.bit_generator, copy.deepcopy(value.bit_generator.state)
            self.undo.append(functools.partial(setattr, source, "state", state))


def _base_of(value: dict[Any, Any]) -> type[dict[Any, Any]]:
    """Whose methods change it without calling any of a class derived from it."""
    return OrderedDict if isinstance(value, OrderedDict) else dict


def _refill_dict(value: dict[Any, Any], before: dict[Any, Any], base: type[dict[Any, Any]]) -> None:
    """Only where something is different: a dict that others iterate over stays whole."""
    now = dict(base.items(value))
    if list(map(id, now)) == list(map(id, before)) and all(now[key] is before[key] for key in before):
        return
    base.clear(value)
    base.update(value, before)


def _refill_list(value: list[Any], before: list[Any]) -> None:
    if list(map(id, list.__iter__(value))) != list(map(id, before)):
        list.__setitem__(value, slice(None), before)


def _refill_set(value: set[Any], before: list[Any]) -> None:
    if {id(item) for item in set.__iter__(value)} != {id(item) for item in before}:
        set.clear(value)
        set.update(value, before)


def _refill_deque(value: deque[Any], before: list[Any]) -> None:
    if list(map(id, value)) != list(map(id, before)):
        value.clear()
        value.extend(before)


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.grad if tensor.is_leaf else None


def _copied(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values, in memory of their own; None where that is too much."""
    if type(tensor) not in (torch.Tensor, nn.Parameter) or is_lazy(tensor):
        return None
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        return None
    with torch.no_grad():
        plain = tensor.detach()
        if tensor.nbytes > _MAX_COPIED_BYTES and tensor.device.type != "cpu":
            return None
        return plain.clone()


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Which memory a tensor shows, and how. Not by its address, which would end the sharing of a copy."""
    memory = tensor.untyped_storage()._cdata
    return memory, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _become_again(tensor: torch.Tensor, original: torch.Tensor, place: tuple[Any, ...]) -> None:
    """Give a tensor whose `.data` was set the memory that it had."""
    if _place(tensor) == place:
        return
    with torch.no_grad():
        if tensor.is_meta == original.is_meta and tensor.dtype == original.dtype:
            tensor.data = original
        else:
            made = original.detach()
            if isinstance(tensor, nn.Parameter):
                made = nn.Parameter(made, requires_grad=False)
            made.requires_grad_(tensor.requires_grad)
            made.__dict__.update(tensor.__dict__)
            torch.utils.swap_tensors(tensor, made)


def _same_bits(tensor: torch.Tensor, saved: torch.Tensor) -> bool:
    """NaN is equal to itself, and zero not to minus zero."""
    with torch.no_grad():
        now, then = (
            given.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
            for given in (tensor, saved)
        )
        return bool(torch.equal(now, then))


def _slot(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _ABSENT


def _refill_slot(value: Any, name: str, before: Any) -> None:
    if _slot(value, name) is before:
        return
    if before is _ABSENT:
        object.__delattr__(value, name)
    else:
        object.__setattr__(value, name, before)


@functools.cache
def _slot_names(kind: type) -> tuple[str, ...]:
    """Names of the `__slots__` of a class and its bases."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__"):
                is_private = name.startswith("__") and not name.endswith("__")
                names.append(f"_{base.__name__.lstrip('_')}{name}" if is_private else name)
    return tuple(names)
