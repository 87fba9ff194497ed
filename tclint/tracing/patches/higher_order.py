"""Operators that take functions reach the recorder, in every version of torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tclint.tracing.patches.patch import copied_function, patch
from tclint.tracing.record.higher_order import has_rule, run_higher_order


@patch(
    replaces="the dispatch tables of higher-order operators (`torch.while_loop`, `torch.cond`, ...)",
    why="modes of older versions cannot say that they support such operators",
)
def higher_order_operators(mode: type[TorchDispatchMode]) -> Iterator[None]:
    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        yield
        return
    added: list[dict[Any, Any]] = []
    try:
        for function in getattr(torch._ops, "_higher_order_ops", {}).values():
            if has_rule(function) and not _tables(function, mode):
                function.py_impl(mode)(functools.partial(_from_table, function))
                added += _tables(function, mode)
        yield
    finally:
        for table in added:
            del table[mode]


def _tables(function: Any, mode: type[TorchDispatchMode]) -> list[dict[Any, Any]]:
    """Where the operator keeps what runs it under a mode: versions name that differently."""
    return [table for table in vars(function).values() if isinstance(table, dict) and mode in table]


SCANS = "torch._higher_order_ops.associative_scan"


def generic_scans() -> list[tuple[Any, str, Any]]:
    """A replacement for associative_scan, which in its fast mode takes nothing but tensors on a GPU."""
    function = getattr(sys.modules.get(SCANS), "associative_scan", None)
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        return []
    if "combine_mode" not in function.__code__.co_varnames:  # older versions (2.4) have none
        return []
    real = copied_function(function)

    def scan(*args: Any, **kwargs: Any) -> Any:
        return real(*args[:4], **{**kwargs, "combine_mode": "generic"})

    # User code may have imported it by name: what it does is exchanged, not what the name holds.
    return [(function, "__code__", scan)]


def _from_table(function: Any, recorder: Any, *args: Any, **kwargs: Any) -> Any:
    return run_higher_order(recorder, function, args, kwargs)
