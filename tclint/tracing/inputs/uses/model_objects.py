"""What the expressions of a forward stand for among the model's own layers and weights."""

from __future__ import annotations

import ast
from typing import Any

from torch import nn


class OwnObjects:
    """The objects that a method's expressions name.

    Args:
        owner: the object that the method belongs to.
        own_name: what the method calls it: 'self', mostly; '' of a function, which has none.
    """

    def __init__(self, owner: nn.Module, own_name: str) -> None:
        self._owner = owner
        self._own_name = own_name
        self.named: dict[str, nn.Module] = {}
        """Layers by the local names that hold them; the first of those that share the name in a loop."""

    def module(self, node: ast.expr) -> nn.Module | None:
        """The layer that an expression names."""
        if isinstance(node, ast.Name) and node.id in self.named:
            return self.named[node.id]
        found = self.object(node)
        if isinstance(found, nn.Module) and found is not self._owner:
            return found
        if isinstance(node, ast.Subscript):  # one of a list, by a name that only the run knows
            container = self.object(node.value)
            if isinstance(container, (nn.ModuleList, nn.ModuleDict)):
                return next(iter(container.children()), None)
        return None

    def container(self, node: ast.expr) -> nn.Module | None:
        """As `module`; the object itself too, where it holds its layers by name or in order."""
        is_own = isinstance(node, ast.Name) and node.id == self._own_name
        if is_own and isinstance(self._owner, (nn.ModuleDict, nn.ModuleList, nn.Sequential)):
            return self._owner
        return self.module(node)

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
