"""Weights are made without their values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _python_dispatch

from tclint.tracing.patches.patch import itself, patch, patched


@patch(
    replaces="`torch.nn.init._no_grad_uniform_`, `_no_grad_normal_`, `_no_grad_trunc_normal_`",
    why="random values of weights matter to nobody and take time; all public initialisers end in these, "
    "also those that were imported by name",
)
def without_initialisation() -> Iterator[None]:
    names = ("_no_grad_uniform_", "_no_grad_normal_", "_no_grad_trunc_normal_")
    with patched([(nn.init, name, itself) for name in names]):
        yield


@patch(
    replaces="`torch.nn.parameter.UninitializedTensorMixin.materialize`",
    why="lazy parameters take their shape outside the recorder, which cannot swap a tensor's storage",
)
def lazy_parameters() -> Iterator[None]:
    mixin = getattr(nn.parameter, "UninitializedTensorMixin", None)
    materialize: Any = getattr(mixin, "materialize", None)
    # Without these two a lazy parameter is made under the recorder, which most models survive.
    without_modes = getattr(_python_dispatch, "_disable_current_modes", contextlib.nullcontext)
    without_functions = getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)

    def plain(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        # Stays on the CPU, where it was made: its memory is reserved and never touched.
        with without_modes(), without_functions():
            materialize(self, shape, device=device, dtype=dtype)

    with patched([(mixin, "materialize", plain)]):
        yield
