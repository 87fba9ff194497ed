"""torch.autocast regions inside the model, reproduced on meta tensors.

Inside a dispatch mode torch reports autocast as off, so entering and leaving a region is patched to keep
the state, and inputs are converted here by torch's operator lists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tclint.graph.ops import Cast
from tclint.graph.ops.autocast_lists import autocast_lists
from tclint.tracing.kernels.meta_kernels import empty_meta
from tclint.tracing.values.dtypes import dtype_name
from tclint.tracing.values.origin import origin_for_reading, set_origin

_CASTABLE = (torch.float32, torch.float16, torch.bfloat16)


@contextlib.contextmanager
def watched_autocast(recorder: Any) -> Iterator[None]:
    """Keep `recorder.autocast_dtype` and `.autocast_disabled` in step with torch.autocast; undone on exit."""
    autocast: Any = torch.autocast
    init, enter, leave = autocast.__init__, autocast.__enter__, autocast.__exit__
    cast = getattr(torch.amp.autocast_mode, "_cast", None)
    regions: list[Any] = []

    def patched_init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        # `x.device.type` of a traced tensor.
        init(self, "cuda" if device_type == "meta" else device_type, *args, **kwargs)

    def patched_enter(self: Any) -> Any:
        result = enter(self)
        regions.append(self)
        update()
        return result

    def patched_exit(self: Any, *exception: Any) -> Any:
        result = leave(self, *exception)
        if self in regions:
            regions.remove(self)
        update()
        return result

    def patched_cast(value: Any, _device_type: str, dtype: torch.dtype) -> Any:
        assert cast is not None
        return cast(value, "meta", dtype)

    def update() -> None:
        recorder.autocast_dtype = _current_dtype()
        on_gpu = [region for region in regions if region.device != "cpu"]
        recorder.autocast_disabled = bool(on_gpu) and not on_gpu[-1]._enabled

    autocast.__init__, autocast.__enter__, autocast.__exit__ = patched_init, patched_enter, patched_exit
    if cast is not None:  # of custom_fwd(cast_inputs=)
        setattr(torch.amp.autocast_mode, "_cast", patched_cast)  # noqa: B010
    update()
    try:
        yield
    finally:
        autocast.__init__, autocast.__enter__, autocast.__exit__ = init, enter, leave
        if cast is not None:
            setattr(torch.amp.autocast_mode, "_cast", cast)  # noqa: B010


def _current_dtype() -> torch.dtype | None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
    return None


def casts_to_float32(function: Any) -> bool:
    """Whether `custom_fwd(cast_inputs=torch.float32)` decorates a custom autograd.Function's forward."""
    forward: Any = getattr(function, "forward", None)
    names = getattr(getattr(forward, "__code__", None), "co_freevars", ())
    if "cast_inputs" not in names:
        return False
    cell = forward.__closure__[names.index("cast_inputs")]
    return bool(cell.cell_contents is torch.float32)


def cast_arguments(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], low: torch.dtype
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Cast, ...]]:
    """The arguments as autocast would hand them to operator `name`, and the conversions made."""
    policy = autocast_lists().policy(name)
    if policy == "lower_precision":
        target = low
    elif policy in ("fp32", "fp32_result"):
        if kwargs.get("dtype") is not None or any(isinstance(value, torch.dtype) for value in args):
            return args, kwargs, ()
        target = torch.float32
    elif policy == "promote" and len(_dtypes(args)) > 1:
        target = torch.float32
    else:
        return args, kwargs, ()
    casts: list[Cast] = []

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype == target or value.dtype not in _CASTABLE:
                return value
            converted = empty_meta((tuple(value.shape), value.stride(), target))
            origin = origin_for_reading(value)
            set_origin(converted, origin)
            if policy != "fp32_result":  # there the kernel converts what it reads
                casts.append(
                    Cast(
                        tuple(value.shape),
                        dtype_name(value.dtype),
                        dtype_name(target),
                        origin.parameter,
                    )
                )
            return converted
        if type(value) in (list, tuple):
            return type(value)(convert(item) for item in value)
        return value

    return (
        tuple(convert(value) for value in args),
        {key: convert(value) for key, value in kwargs.items()},
        tuple(casts),
    )


def _dtypes(args: tuple[Any, ...]) -> set[torch.dtype]:
    found = set()
    for value in args:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor) and item.dtype in _CASTABLE:
                found.add(item.dtype)
    return found
