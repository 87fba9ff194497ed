"""What the expressions of a forward stand for among the model's own layers and weights."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from tclint.tracing.inputs.forward import package_of


class OwnObjects:
    """The objects that a method's expressions name.

    Args:
        owner: the object that the method belongs to.
        own_name: what the method calls it: 'self', mostly; '' of a function, which has none.
        method: the method itself.
    """

    def __init__(self, owner: nn.Module, own_name: str, method: Any) -> None:
        self._owner = owner
        self._own_name = own_name
        self._method = inspect.unwrap(method) if callable(method) else None
        self.named: dict[str, tuple[nn.Module, int]] = {}
        """Layers by the local names that hold them, each with how many share the name in a loop."""

    def parameter(self, node: ast.expr) -> Any:
        """The weight that an expression names, or None."""
        found = self.object(node)
        return found if isinstance(found, nn.Parameter) else None

    def module(self, node: ast.expr) -> tuple[nn.Module, int] | None:
        """The layer that an expression names, and how many it stands for."""
        if isinstance(node, ast.Name) and node.id in self.named:
            return self.named[node.id]
        found = self.object(node)
        if isinstance(found, nn.Module) and found is not self._owner:
            return found, 1
        if isinstance(node, ast.Subscript):  # one of a list, by a name that only the run knows
            container = self.object(node.value)
            if isinstance(container, (nn.ModuleList, nn.ModuleDict)) and len(container):
                return next(iter(container.children())), len(container)
        return None

    def container(self, node: ast.expr) -> tuple[nn.Module, int] | None:
        """As `module`; the object itself too, where it holds its layers by name or in order."""
        is_own = isinstance(node, ast.Name) and node.id == self._own_name
        if is_own and isinstance(self._owner, (nn.ModuleDict, nn.ModuleList, nn.Sequential)):
            return self._owner, 1
        return self.module(node)

    def inherited(self, name: str) -> Callable[..., Any] | None:
        """The method that `super()` calls in this one, if it is not PyTorch's."""
        kinds = type(self._owner).__mro__
        places = [
            place
            for place, kind in enumerate(kinds)
            if any(
                inspect.isfunction(own) and inspect.unwrap(own) is self._method for own in vars(kind).values()
            )
        ]
        later = (vars(kind).get(name) for kind in kinds[places[0] + 1 :]) if places else iter(())
        method = next((found for found in later if found is not None), None)
        return method if inspect.isfunction(method) and package_of(method.__module__) != "torch" else None

    def object(self, node: ast.expr) -> Any:
        """What `self.a.b[0]` is, or None."""
        if isinstance(node, ast.Name):
            return self._owner if node.id == self._own_name else None
        if isinstance(node, ast.Attribute):
            owner = self.object(node.value)
            try:
                return None if owner is None else getattr(owner, node.attr, None)
            except Exception:
                return None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = self.object(node.value)
            try:
                return None if owner is None else owner[node.slice.value]
            except Exception:
                return None
        return None
