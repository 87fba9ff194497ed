"""Calls in a forward: which functions are read, and what tensor methods keep of their arguments."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from tclint.tracing.inputs.forward import package_of
from tclint.tracing.inputs.uses.model_objects import OwnObjects


@dataclass
class ArgumentUse:
    """What the source tells about one argument."""

    layer: nn.Module | None = None
    """The first layer that takes it."""
    position: int = 0
    """Which argument of that layer it is."""
    is_direct: bool = True
    """The layer takes it without another dim put in, and not joined with anything."""
    is_index: bool = False
    """It selects elements of something else."""


# These tell about a tensor and hold none of its values.
METADATA = frozenset({"device", "dtype", "shape", "ndim", "size", "dim", "numel", "requires_grad", "is_cuda"})
JOINS = frozenset({"add", "cat", "concat", "concatenate", "hstack", "mul", "stack", "sub", "vstack", "where"})
ADDS_A_DIM = frozenset({"cat", "concat", "concatenate", "einsum", "hstack", "outer", "stack", "unsqueeze"})
# What they return are places in their argument; of the second group, only the second part is.
PLACES = frozenset(
    {"argmax", "argmin", "argsort", "bucketize", "indices", "multinomial", "nonzero", "searchsorted"}
    # What compares tells of all its arguments and holds none.
    | {"eq", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_not", "lt", "ne"}
)
WITH_PLACES = frozenset({"kthvalue", "max", "median", "min", "mode", "sort", "topk"})

_MAX_DEPTH = 8
_MAX_CALLS = 400
"""For one model; to read one takes 0.2 ms (three lines) to 2.4 ms (a hundred; Python 3.11)."""
_NOT_PLAIN = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE


class FollowedCalls:
    """The calls that lead to the function that is read, and how many were followed in all."""

    def __init__(self) -> None:
        self._running: list[tuple[int, int]] = []
        self._followed = 0

    def may_enter(self, owner: nn.Module | None, method: Any) -> bool:
        """Whether to read a method of an object, or a function: none that calls itself, and not too many."""
        is_allowed = len(self._running) < _MAX_DEPTH and self._followed < _MAX_CALLS
        return is_allowed and _call_of(owner, method) not in self._running

    @contextlib.contextmanager
    def entered(self, owner: nn.Module | None, method: Any) -> Iterator[None]:
        """For as long as the method or function is read."""
        self._followed += 1
        self._running.append(_call_of(owner, method))
        try:
            yield
        finally:
            self._running.pop()


def _call_of(owner: nn.Module | None, method: Any) -> tuple[int, int]:
    return id(owner), id(getattr(method, "__code__", method))


def plain_helper(
    node: ast.Call, names: Mapping[str, Any], local_names: Container[str], own: OwnObjects
) -> Callable[..., Any] | None:
    """The function that is called by its name, if it is of the forward's own package and plain.

    What it would do with layers that it is given, or arguments that have no names, is not read.

    Args:
        names: what names stand for in the calling function's module.
        local_names: hide those.
    """
    name = getattr(node.func, "id", "")
    found = None if name in local_names else names.get(name)
    if not inspect.isfunction(found) or found.__code__.co_flags & _NOT_PLAIN:
        return None
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    if len(node.args) > found.__code__.co_argcount or any(own.container(item) for item in given):
        return None
    return found if package_of(found.__module__) == package_of(names.get("__name__")) else None
