"""Derivatives inside a forward are refused where they would be wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tclint.tracing.patches.patch import patch, patched


@patch(
    replaces="`grad_increment_nesting` and `jvp_increment_nesting` of `torch._functorch.eager_transforms`",
    why="in inference mode older versions (2.6) take the derivatives of torch.func for zero; an error makes "
    "the trace start again with autograd",
)
def derivatives_need_autograd() -> Iterator[None]:
    transforms = sys.modules.get("torch._functorch.eager_transforms")
    names = ("grad_increment_nesting", "jvp_increment_nesting")
    found = [name for name in names if hasattr(transforms, name)]
    with patched([(transforms, name, _or_refuse(getattr(transforms, name))) for name in found]):
        yield


def _or_refuse(enter: Callable[..., Any]) -> Callable[..., Any]:
    def enter_or_refuse(*args: Any, **kwargs: Any) -> Any:
        if torch.is_inference_mode_enabled():
            raise RuntimeError("torch.func needs autograd")  # and gets it in the next attempt
        return enter(*args, **kwargs)

    return enter_or_refuse
