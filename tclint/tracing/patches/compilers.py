"""Compiled and scripted modules run as the Python they were made of."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tclint.tracing.patches.patch import itself, nothing, patch, patched


@patch(
    replaces="`torch.compile`, `nn.Module.compile`",
    why="Dynamo would trace the model itself, and its code would run outside the recorder",
)
def without_compilation() -> Iterator[None]:
    with patched([(torch, "compile", _not_compiled), (nn.Module, "compile", nothing)]):
        yield


@patch(
    replaces="`torch.jit.script`, `torch.jit.script_if_tracing`, `torch.jit.trace`, `torch.jit.load`",
    why="a scripted module calls its operators without Python, so no line of it could be named",
)
def without_scripting() -> Iterator[None]:
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
            (torch.jit, "script_if_tracing", itself),
            (torch.jit, "trace", itself),
            (torch.jit, "load", _no_archive),
        ]
    ):
        yield


def _not_compiled(model: Any = None, **_options: Any) -> Any:
    # Used as a function, and as a decorator with options.
    return model if model is not None else lambda function: function


def _no_archive(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("a TorchScript archive holds no Python to trace; build the model from its source")
