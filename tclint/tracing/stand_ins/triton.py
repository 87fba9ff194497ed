"""triton: kernels that are launched and do nothing; their wrappers make the outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Kernel:
    def __init__(self, function: Any) -> None:
        self.function = function

    def __getitem__(self, _grid: Any) -> Callable[..., None]:
        return self

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        """Launched."""


def jit(function: Any = None, **_options: Any) -> Any:
    return _Kernel if function is None else _Kernel(function)


def autotune(*_args: Any, **_kwargs: Any) -> Any:
    return lambda kernel: kernel


heuristics = autotune


class Config:
    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """One of autotune's."""


class constexpr:
    """The annotation `tl.constexpr`."""


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
