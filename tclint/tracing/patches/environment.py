"""Patches of torch that hold while a model is built or run, so that it needs no GPU; all undone on exit."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _python_dispatch

from tclint.tracing.patches.custom_functions import checkpointed_region, patched_apply
from tclint.tracing.patches.distributed import MODULES, plain_wrappers
from tclint.tracing.patches.higher_order import SCANS, generic_scans

_FAKE_CUDA_VALUES: dict[str, Any] = {
    "current_device": 0,
    "empty_cache": None,
    "get_device_capability": (9, 0),
    "get_device_name": "assumed by tclint",
    "is_bf16_supported": True,
    "manual_seed": None,
    "manual_seed_all": None,
    "set_device": None,
    "synchronize": None,
}
_FAKE_CUDA_TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}


class patched:
    """Set attributes that exist for the length of the block."""

    __slots__ = ("_before", "_replacements")

    def __init__(self, replacements: Sequence[tuple[Any, str, Any]]) -> None:
        self._replacements = replacements
        self._before: list[Any] = []

    def __enter__(self) -> None:
        # vars() keeps the descriptor (staticmethod, classmethod) that getattr would unwrap.
        self._before = [
            vars(owner).get(name, getattr(owner, name)) if hasattr(owner, name) else _ABSENT
            for owner, name, _ in self._replacements
        ]
        for (owner, name, value), before in zip(self._replacements, self._before, strict=True):
            if before is not _ABSENT:
                setattr(owner, name, value)

    def __exit__(self, *_error: object) -> None:
        for (owner, name, _), before in zip(
            reversed(self._replacements), reversed(self._before), strict=True
        ):
            if before is not _ABSENT:
                setattr(owner, name, before)


_ABSENT = object()


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Let code that asks for CUDA, compiles or scripts itself, or takes shortcuts run as plain torch."""
    replacements: list[tuple[Any, str, Any]] = [
        (torch, "compile", _not_compiled),
        (nn.Module, "compile", _nothing),
    ]
    for module_name in ("torch.cuda.amp.common", "torch.amp.autocast_mode"):
        with contextlib.suppress(ImportError):  # not in every version
            module = importlib.import_module(module_name)
            replacements.append((module, "amp_definitely_not_available", _never))
    if not torch.cuda.is_available():
        replacements.append((nn.Module, "cuda", _itself))
        replacements.append((nn.Module, "to", _to_device_by_number(nn.Module.to)))
        replacements += _fake_cuda()
    replacements += _lazy_parameters()
    imported = _late_replacements()
    replacements += imported
    checkpoint = sys.modules.get("torch.utils.checkpoint")
    if checkpoint is not None:
        # Saves inputs for a backward pass, which inference tensors do not allow.
        name = "_checkpoint_without_reentrant_generator"
        # torch 2.14 calls the second.
        replacements += [(checkpoint, own, checkpointed_region) for own in (name, f"{name}_impl")]
    flex = sys.modules.get("torch.nn.attention.flex_attention")
    if flex is not None:
        replacements.append((flex, "_validate_device", _nothing))
    functorch = sys.modules.get("torch._functorch.eager_transforms")
    for name in ("grad_increment_nesting", "jvp_increment_nesting"):
        if hasattr(functorch, name):
            replacements.append((functorch, name, _with_autograd(getattr(functorch, name))))
    with (
        patched(replacements),
        _patched_when_imported(imported),
        _slow_attention(),
        _no_scripting(),
        patched_apply(),
    ):
        yield


@functools.cache
def _fake_cuda() -> tuple[tuple[Any, str, Any], ...]:
    """Made once in a worker, and not for every trace; a function each, as torch._dynamo wants it."""
    return (
        *((torch.cuda, name, _returns(value)) for name, value in _FAKE_CUDA_VALUES.items()),
        *((torch.cuda, name, _typed(dtype)) for name, dtype in _FAKE_CUDA_TENSORS.items()),
    )


_LATE_MODULES = frozenset({*MODULES, SCANS})


def _late_replacements() -> list[tuple[Any, str, Any]]:
    return [*plain_wrappers(), *generic_scans()]


class _PatchingFinder:
    """Patches modules that are imported while it stands in sys.meta_path, as soon as they are there.

    Args:
        done: the replacements of those that were imported before.
        undo: takes back the others.
    """

    def __init__(self, done: list[tuple[Any, str, Any]], undo: contextlib.ExitStack) -> None:
        self._done = done
        self._undo = undo

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _LATE_MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader = spec.loader if spec is not None else None
        if spec is None or loader is None:
            return None
        run = loader.exec_module

        def run_and_patch(module: Any) -> None:
            run(module)
            known = {(id(owner), attribute) for owner, attribute, _ in self._done}
            new = [item for item in _late_replacements() if (id(item[0]), item[1]) not in known]
            self._done.extend(new)
            self._undo.enter_context(patched(new))

        loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _patched_when_imported(done: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Patch modules that the block itself imports as well."""
    with contextlib.ExitStack() as undo:
        finder = _PatchingFinder(done, undo)
        sys.meta_path.insert(0, finder)
        undo.callback(sys.meta_path.remove, finder)
        yield


@contextlib.contextmanager
def without_initialisation() -> Iterator[None]:
    """Make torch.nn.init's random fillers do nothing: the values of weights do not matter."""

    # All public initialisers end in these, also those imported by name before the patch.
    names = ("_no_grad_uniform_", "_no_grad_normal_", "_no_grad_trunc_normal_")
    with patched([(nn.init, name, _keep) for name in names]):
        yield


@contextlib.contextmanager
def _slow_attention() -> Iterator[None]:
    """nn.MultiheadAttention and nn.TransformerEncoderLayer as linear and attention, not as one fused op."""
    mha = getattr(torch.backends, "mha", None)
    if mha is None or not hasattr(mha, "set_fastpath_enabled"):
        yield
        return
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _no_scripting() -> Iterator[None]:
    """torch.jit.script and torch.jit.trace hand back the Python they are given."""
    real = torch.jit.script

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        # Forward-mode derivatives are scripted on first use, and needed as scripts.
        if sys._getframe(1).f_globals.get("__name__") == "torch._decomp.decompositions_for_jvp":
            state = getattr(getattr(torch.jit, "_state", None), "_enabled", None)
            with patched([(state, "enabled", True), (torch.jit, "script", real)]):
                return real(obj, *args, **kwargs)
        return obj

    with patched(
        [
            (torch.jit, "script", script),
            (torch.jit, "script_if_tracing", _itself),
            (torch.jit, "trace", _itself),
            (torch.jit, "load", _no_archive),
        ]
    ):
        yield


def _no_archive(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("a TorchScript archive holds no Python to trace; build the model from its source")


def _to_device_by_number(to: Callable[..., Any]) -> Callable[..., Any]:
    """`model.to(rank)` as `model.to("cuda")`, which needs no GPU to be understood."""

    def to_named(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = ("cuda", *args[1:])
        elif type(kwargs.get("device")) is int:
            kwargs["device"] = "cuda"
        return to(self, *args, **kwargs)

    return to_named


def _with_autograd(enter: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse torch.func's derivatives in inference mode, where older versions (2.6) take them for zero."""

    def enter_or_refuse(*args: Any, **kwargs: Any) -> Any:
        if torch.is_inference_mode_enabled():
            raise RuntimeError("torch.func needs autograd")  # and gets it in the next attempt
        return enter(*args, **kwargs)

    return enter_or_refuse


def _not_compiled(model: Any = None, **_options: Any) -> Any:
    # Used as a function, and as a decorator with options.
    return model if model is not None else lambda function: function


def _keep(tensor: torch.Tensor, *_args: Any, **_kwargs: Any) -> torch.Tensor:
    return tensor


def _itself(given: Any, *_args: Any, **_kwargs: Any) -> Any:
    return given


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _never() -> bool:
    return False


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def _typed(dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    def make(*args: Any, **_kwargs: Any) -> torch.Tensor:
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            return torch.tensor(args[0], dtype=dtype)
        return torch.empty(*args, dtype=dtype)

    return make


def _lazy_parameters() -> list[tuple[Any, str, Any]]:
    """Lazy parameters take their shape outside the recorder, which cannot swap a tensor's storage."""
    mixin = getattr(nn.parameter, "UninitializedTensorMixin", None)
    if mixin is None:
        return []
    materialize = mixin.materialize
    # Without these two a lazy parameter is made under the recorder, which most models survive.
    without_modes = getattr(_python_dispatch, "_disable_current_modes", contextlib.nullcontext)
    without_functions = getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)

    def plain(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        # Stays on the CPU, where it was made: its memory is reserved and never touched.
        with without_modes(), without_functions():
            materialize(self, shape, device=device, dtype=dtype)

    return [(mixin, "materialize", plain)]
