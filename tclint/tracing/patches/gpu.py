"""Code that asks for CUDA runs where there is none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tclint.tracing.patches.patch import itself, patch, patched

_VALUES: dict[str, Any] = {
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
_TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}


@patch(
    replaces="`nn.Module.cuda`, `nn.Module.to`, functions of `torch.cuda` such as `current_device`, "
    "`torch.cuda.FloatTensor` and its kin",
    why="models move themselves to a GPU and ask what it can do; left alone where there is a GPU",
)
def without_cuda() -> Iterator[None]:
    if torch.cuda.is_available():
        yield
        return
    modules = [(nn.Module, "cuda", itself), (nn.Module, "to", _to_device_by_number(nn.Module.to))]
    with patched([*modules, *_fake_cuda()]):
        yield


@functools.cache
def _fake_cuda() -> tuple[tuple[Any, str, Any], ...]:
    """Made once in a worker, and not for every trace; a function each, as torch._dynamo wants it."""
    return (
        *((torch.cuda, name, _returns(value)) for name, value in _VALUES.items()),
        *((torch.cuda, name, _typed(dtype)) for name, dtype in _TENSORS.items()),
    )


def _to_device_by_number(to: Callable[..., Any]) -> Callable[..., Any]:
    """`model.to(rank)` as `model.to("cuda")`, which needs no GPU to be understood."""

    def to_named(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = ("cuda", *args[1:])
        elif type(kwargs.get("device")) is int:
            kwargs["device"] = "cuda"
        return to(self, *args, **kwargs)

    return to_named


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def _typed(dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    def make(*args: Any, **_kwargs: Any) -> torch.Tensor:
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            return torch.tensor(args[0], dtype=dtype)
        return torch.empty(*args, dtype=dtype)

    return make
