"""Reads YAML, and JSON as a subset of it.

Scalars have the values that PyYAML gives them, since the frameworks read their files with it: `no` is False,
and `1e-4` is a string."""

from __future__ import annotations

import json
from typing import Any

from tclint.source.recipes.tree import Node, NotReadable
from tclint.source.syntax.positions import Span

_DEEPEST = 60
_TAG = "tag:yaml.org,2002:"


def parse_yaml(text: str, *, is_json: bool = False) -> Node:
    """The tree of a text's first document.

    Args:
        is_json: whether scalars follow JSON.

    Raises:
        NotReadable: it is not valid YAML.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # JSON allows tabs between tokens and YAML does not; neither allows them inside JSON's strings.
    reader = loader(text.replace("\t", " ") if is_json else text)
    try:
        root = reader.get_node() if reader.check_node() else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise NotReadable(problem, line, column) from error
    finally:
        reader.dispose()
    if root is None:
        return Node(None, Span(1, 1, 1, 1))
    return _Tree(yaml, is_json).node(root, root, 0)


class _Tree:
    def __init__(self, yaml: Any, is_json: bool) -> None:
        self.yaml = yaml
        self.constructor = yaml.constructor.SafeConstructor()
        self.is_json = is_json
        self.made: dict[tuple[int, int], Node] = {}
        """(node, start) -> node with its place; with aliases, one node stands at several places."""

    def node(self, node: Any, start: Any, depth: int) -> Node:
        key = (id(node), id(start))
        if key not in self.made:
            self.made[key] = Node(self._value(node, depth), self._span(node, start))
        return self.made[key]

    def _value(self, node: Any, depth: int) -> object:
        if depth > _DEEPEST:
            return None
        if isinstance(node, self.yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, self.yaml.SequenceNode):
            return [self.node(item, item, depth + 1) for item in node.value]
        found: dict[str, Node] = {}
        for key, item in node.value:
            if key.tag == f"{_TAG}merge":
                merged = item.value if isinstance(item, self.yaml.SequenceNode) else [item]
                for other in merged:
                    found = {**self.node(other, other, depth + 1).entries, **found}
            elif isinstance(key, self.yaml.ScalarNode):
                found[key.value] = self.node(item, key, depth + 1)
        return found

    def _scalar(self, node: Any) -> object:
        if self.is_json and node.style is None:
            try:
                return json.loads(node.value)
            except ValueError:
                return node.value
        kind = node.tag.removeprefix(_TAG)
        if kind not in ("bool", "int", "float", "null"):
            return node.value
        try:
            return self.constructor.construct_object(node)
        except (ValueError, self.yaml.YAMLError):
            return node.value

    def _span(self, node: Any, start: Any) -> Span:
        first = start.start_mark
        last = node.end_mark if isinstance(node, self.yaml.ScalarNode) else start.end_mark
        if last.line != first.line and isinstance(node, self.yaml.ScalarNode):
            last = start.end_mark
        if start is node and not isinstance(node, self.yaml.ScalarNode):
            last = first
        return Span(first.line + 1, first.column + 1, last.line + 1, last.column + 1)
