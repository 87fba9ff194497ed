"""Kernels of an installed triton, which compiles them for a GPU when they are launched."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

from tclint.tracing.stand_ins import triton
from tclint.tracing.stand_ins.install import replaced_without_gpu

LIBRARY = "triton"


def idle_kernels() -> list[tuple[Any, str, Any]]:
    """The replacements of what makes kernels of functions; none without triton, or with a GPU."""
    library = sys.modules.get(LIBRARY)
    if type(library) is not ModuleType or torch.cuda.is_available():
        return []
    return [
        (library, "jit", _jit),
        (library, "autotune", triton.autotune),
        (library, "heuristics", triton.heuristics),
    ]


def _jit(*args: Any, **options: Any) -> Any:
    replaced_without_gpu(LIBRARY)
    return triton.jit(*args, **options)
