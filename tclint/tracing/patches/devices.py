"""Keeps user code off real devices: `.cuda()`, `.to("cuda")`, `device=` and `.numpy()` on traced tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch

from tclint.tracing.meta_ops.meta_kernels import to_meta
from tclint.tracing.patches.patch import interruption_point
from tclint.tracing.record.placeholder_weights import become_meta
from tclint.tracing.values.contents import likely_values
from tclint.tracing.values.operators import Args, Kwargs
from tclint.tracing.values.origin import ensure_origin

_CPU = torch.device("cpu")
_META = torch.device("meta")
_HERE = ("cpu", "meta")
_FROM_PYTHON = (torch.tensor, torch.as_tensor, torch.asarray)


class DeviceRewriter(TorchFunctionMode):
    """Rewrites calls before torch's argument parser can fail on a missing device.

    Args:
        assume: told of values that had to be invented.
        says: the device on which every tensor says that it is, for forwards that look at devices.
    """

    def __init__(self, assume: Callable[[str], None], *, says: torch.device | None = None) -> None:
        super().__init__()
        self._assume = assume
        self._says = says

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        interruption_point()
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        handler = _HANDLERS.get(name)
        if handler is not None and args and isinstance(args[0], torch.Tensor):
            result = handler(self._assume, func, args, kwargs)
            if result is not NotImplemented:
                return result
        if self._says is not None and name == "__get__" and func == torch.Tensor.device.__get__:
            return self._says
        gradients = _GRADIENTS.get(func)
        if gradients is not None:
            kwargs = {**kwargs, gradients: _on_meta_as(args[0], kwargs.get(gradients))}
        device = kwargs.get("device")
        if device is not None:
            if isinstance(device, str):
                device = torch.device(device)
            # What is written down in Python keeps its values, whichever tensor's device it is for.
            if (
                isinstance(device, int)
                or device.type not in _HERE
                or (
                    device == _META
                    and func in _FROM_PYTHON
                    and not (args and isinstance(args[0], torch.Tensor))
                )
            ):
                kwargs = {**kwargs, "device": _CPU}
        return func(*args, **kwargs)


_GRADIENTS: dict[Any, str] = {
    torch.autograd.backward: "grad_tensors",
    torch.autograd.grad: "grad_outputs",
    torch.Tensor.backward: "gradient",
}
"""What calls of these, whose arguments torch has put in order, name the gradients of their first argument."""


def _on_meta_as(outputs: Any, gradients: Any) -> Any:
    """Real gradients (ones, as a rule) on meta where the outputs are: the engine compares the devices."""
    are_several = isinstance(outputs, (list, tuple))
    if are_several and isinstance(gradients, (list, tuple)) and len(outputs) == len(gradients):
        return tuple(map(_on_meta_as, outputs, gradients))
    if are_several and len(outputs) == 1:
        return _on_meta_as(outputs[0], gradients)
    if isinstance(outputs, torch.Tensor) and isinstance(gradients, torch.Tensor) and outputs.is_meta:
        return to_meta(gradients)
    return gradients


def _stay(_assume: Any, _func: Any, args: Args, _kwargs: Kwargs) -> Any:
    return args[0]


def _numpy(assume: Any, _func: Any, args: Args, _kwargs: Kwargs) -> Any:
    tensor = args[0]
    if not tensor.is_meta:
        return NotImplemented
    import numpy

    dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
    # As tolist() has it: whole numbers are counts, periods, lengths, by which others are divided.
    value = 0 if dtype is torch.bool or dtype.is_floating_point or dtype.is_complex else 1
    made = numpy.full(tuple(tensor.shape), value, dtype=torch.empty((), dtype=dtype).numpy().dtype)
    counts = likely_values(tensor)
    if counts is None:
        assume(f"numpy() of a traced tensor: {'ones' if value else 'zeros'} assumed")
    else:
        assume("numpy() of traced counts: equal counts assumed")
        made.reshape(-1)[:] = counts
    return made


def _array(assume: Any, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """`numpy.asarray(tensor)`, and all of numpy's functions that are given one."""
    made = _numpy(assume, func, args[:1], {})
    dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
    return made if made is NotImplemented or dtype is None else made.astype(dtype, copy=False)


def _tolist(assume: Any, _func: Any, args: Args, _kwargs: Kwargs) -> Any:
    tensor = args[0]
    if not tensor.is_meta:
        return NotImplemented
    counts = likely_values(tensor)
    if counts is not None and tensor.dim() == 1:
        assume("tolist() of traced counts: equal counts assumed")
        return [float(count) if tensor.dtype.is_floating_point else count for count in counts]
    value: float | int | bool = 1
    if tensor.dtype == torch.bool:
        value = False
    elif tensor.dtype.is_floating_point:
        value = 0.0
    assume(f"tolist() of a traced tensor: {value} assumed for every element")

    def nested(shape: tuple[int, ...]) -> Any:
        return [nested(shape[1:]) for _ in range(shape[0])] if shape else value

    return nested(tuple(tensor.shape))


def _format(_assume: Any, _func: Any, args: Args, _kwargs: Kwargs) -> Any:
    # Only ever printed, so the value matters to nobody.
    tensor = args[0]
    if not tensor.is_meta:
        return NotImplemented
    if tensor.dim() == 0:
        return format(1.0 if tensor.dtype.is_floating_point else 1, args[1])
    return f"tensor(shape={tuple(tensor.shape)})"


def _to(_assume: Any, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Drop the device of `.to(...)`; keep dtype, copy and memory format."""
    tensor, *rest = args
    kept = {key: value for key, value in kwargs.items() if key in ("dtype", "copy", "memory_format")}
    other = kwargs.get("other", rest[0] if rest else None)
    if isinstance(other, torch.Tensor):
        kept["dtype"] = other.dtype
        rest = rest[1:]
    elif rest and isinstance(rest[0], torch.dtype):
        kept["dtype"] = rest[0]
        rest = rest[1:]
    elif rest and (rest[0] is None or isinstance(rest[0], (str, torch.device, int))):
        rest = rest[1:]
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            kept["dtype"] = rest[0]
            rest = rest[1:]
    if len(rest) > 1:
        kept["copy"] = rest[1]  # rest[0] is non_blocking
    kept = {key: value for key, value in kept.items() if value is not None}
    if not kept:
        return tensor
    kept.setdefault("dtype", tensor.dtype)
    return func(tensor, **kept)


def _new_tensor(_assume: Any, _func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, *rest = args
    data = rest[0] if rest else kwargs.get("data")
    if not tensor.is_meta or data is None or isinstance(data, torch.Tensor):
        return NotImplemented
    return torch.tensor(data, dtype=kwargs.get("dtype") or tensor.dtype)


def _type(_assume: Any, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """`.type("torch.cuda.HalfTensor")` is `.type(torch.float16)`; what is asked for names no device."""
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    if wanted is None:
        return str(func(args[0])).replace("torch.meta.", "torch.")
    if isinstance(wanted, type):
        wanted = wanted.__name__
    if not isinstance(wanted, str):
        return NotImplemented
    dtype = getattr(getattr(torch, wanted.rpartition(".")[2], None), "dtype", None)
    return func(args[0], dtype) if isinstance(dtype, torch.dtype) else NotImplemented


def _set_data(_assume: Any, func: Any, args: Args, _kwargs: Kwargs) -> Any:
    """`weight.data = value` where torch refuses: in inference mode, and if only one of the two is on meta.

    In inference mode it is enough, with equal metadata, that `weight` now comes from what made `value`.
    """
    if func != torch.Tensor.data.__set__ or not isinstance(args[1], torch.Tensor):
        return NotImplemented
    target, value = args
    if not torch.is_inference_mode_enabled():
        if target.is_meta == value.is_meta:
            return NotImplemented
        if target.is_meta:
            return func(target, to_meta(value))
        become_meta(target, value)
        return None
    if not target.is_meta or (target.shape, target.stride(), target.dtype) != (
        value.shape,
        value.stride(),
        value.dtype,
    ):
        return NotImplemented
    ensure_origin(target).take_maker(ensure_origin(value))
    return None


_without_modes = getattr(_python_dispatch, "_disable_current_modes", contextlib.nullcontext)

_Assume = Callable[[str], None]


def _make_jagged(_assume: _Assume, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Let the offsets and lengths follow the values to meta."""
    if not args[0].is_meta:
        return NotImplemented
    moved = [_to_meta(value) for value in args[1:]]
    return function(args[0], *moved, **{name: _to_meta(value) for name, value in kwargs.items()})


def _attend_jagged(assume: _Assume, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Attention as the one kernel that a GPU runs; torch would choose it by the device."""
    given = args[:3]
    if len(given) < 3 or not all(map(_is_jagged, given)):
        return NotImplemented
    assume("attention over jagged sequences: equal lengths assumed")
    query = given[0]
    dense = [_rows(tensor.transpose(1, 2)).transpose(1, 2) for tensor in given]
    made = function(*dense, *args[3:], **kwargs).transpose(1, 2).flatten(0, 1)
    values = query.transpose(1, 2).values()
    if missing := values.shape[0] - made.shape[0]:
        made = torch.cat([made, made.new_empty((missing, *made.shape[1:]))])
    known = {name: getattr(query, f"_maybe_{name}", None) for name in ("min_seqlen", "max_seqlen")}
    return torch.nested.nested_tensor_from_jagged(made, query.offsets(), **known).transpose(1, 2)


def _separate_jagged(assume: _Assume, _function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The sequences of a nested tensor, one by one."""
    if not _is_jagged(args[0]) or (args[1] if len(args) > 1 else kwargs.get("dim", 0)) != 0:
        return NotImplemented
    assume("the sequences of a jagged nested tensor: equal lengths assumed")
    return list(_rows(args[0]).unbind(0))


def _is_jagged(tensor: Any) -> bool:
    return bool(tensor.is_nested and tensor.layout is torch.jagged and tensor.is_meta)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """As many elements in each sequence, without the rest."""
    values, count = tensor.values(), tensor.shape[0]
    length = max(1, values.shape[0] // count)
    if values.shape[0] != length * count:
        values = values[: length * count]
    return values.unflatten(0, (-1, length))


def _to_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.is_meta or value.is_nested:
        return value
    with _without_modes():  # the recorder would keep a small constant real
        return to_meta(value)


_HANDLERS: dict[str, Callable[[Any, Any, Args, Kwargs], Any]] = {
    "__array__": _array,
    "__format__": _format,
    "__set__": _set_data,
    "_nested_view_from_jagged": _make_jagged,
    "cpu": _stay,
    "cuda": _stay,
    "new_tensor": _new_tensor,
    "numpy": _numpy,
    "pin_memory": _stay,
    "scaled_dot_product_attention": _attend_jagged,
    "to": _to,
    "tolist": _tolist,
    "type": _type,
    "unbind": _separate_jagged,
}
