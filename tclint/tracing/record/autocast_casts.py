"""What torch.autocast converts on the way into an operator, by torch's operator lists."""

from __future__ import annotations

from typing import Any

import torch

from tclint.graph.ops import Cast
from tclint.graph.ops.op_tables import autocast_lists
from tclint.tracing.meta_ops.meta_kernels import empty_meta
from tclint.tracing.values.formats import dtype_name
from tclint.tracing.values.operators import Args, Kwargs
from tclint.tracing.values.origin import origin_for_reading, set_origin

_CASTABLE = (torch.float32, torch.float16, torch.bfloat16)


def cast_arguments(
    name: str, args: Args, kwargs: Kwargs, low: torch.dtype
) -> tuple[Args, Kwargs, tuple[Cast, ...]]:
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
                    Cast(tuple(value.shape), dtype_name(value.dtype), dtype_name(target), origin.parameter)
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


def _dtypes(args: Args) -> set[torch.dtype]:
    found = set()
    for value in args:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor) and item.dtype in _CASTABLE:
                found.add(item.dtype)
    return found
