"""The training step that a configuration file describes: model, sizes, precision, parallelism."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from tclint.source.recipes.doubts import misspelt_keys
from tclint.source.recipes.interpolation import resolved
from tclint.source.recipes.reading import Recipe
from tclint.source.recipes.rows import Row
from tclint.source.recipes.tree import Node

_NOTHING = (False, None, "", "none", "no", "false")
"""Values that switch something off."""
_SPLITS = re.compile(
    r"(pipeline|context|sequence|expert|tensor)_(?:model_)?parallel|(?:^|_)(pp|cp|sp|ep|tp)_(?:size|degree)$"
)
"""Keys by which frameworks split a step over GPUs, whatever the rest of their names."""
_SHORT = {"pp": "pipeline", "cp": "context", "sp": "sequence", "ep": "expert", "tp": "tensor"}
_SPECIAL = ("objective", "not_priced", "bits")
"""Names that rows set only for particular values; all other values are the usual case."""


@dataclass(frozen=True, slots=True)
class Stated:
    """One setting that a file states."""

    value: object
    words: str
    """The words of the file: 'micro_batch_size: 2'."""
    path: str
    line: int
    is_default: bool = False
    """Whether the file leaves it to the framework."""


@dataclass(frozen=True, slots=True)
class Step:
    """All settings of a file by name (tables/README.md lists the names)."""

    path: str
    format: str
    stated: Mapping[str, Stated]
    unread: Mapping[str, Stated] = field(default_factory=dict)
    """Settings with values that the table of the format does not know."""
    not_priced: tuple[Stated, ...] = ()
    """Settings that tclint cannot price; the values are the table's words for them."""

    def get(self, name: str, default: object = None) -> object:
        """The value that the file sets a name to."""
        found = self.stated.get(name)
        return default if found is None else found.value


def step_of(recipe: Recipe) -> Step:
    """The step that a file describes; among the rows for one name, the first that fits counts."""
    stated: dict[str, Stated] = {}
    unread: dict[str, Stated] = {}
    not_priced: list[Stated] = []
    name = recipe.format.name.removesuffix(" configuration")
    for row in recipe.format.step:
        condition = _condition(row, recipe)
        if condition is None or (row.sets in stated and row.sets != "not_priced"):
            continue
        given = next(_given(row, recipe), None)
        value = None if given is None else _read(row, given.value)
        if given is not None and value is not None:
            found = replace(given, value=value)
        elif row.default is not None and given is None:
            found = Stated(
                row.default, f"{name}'s default", recipe.path, condition.span.line, is_default=True
            )
        else:
            if given is not None and given.value not in _NOTHING and row.sets not in _SPECIAL:
                unread.setdefault(row.sets, given)
            continue
        if row.sets == "not_priced":
            not_priced += [found] if found.value else []
        else:
            stated[row.sets] = found
    not_priced += _splits(recipe)
    unread = {sets: found for sets, found in unread.items() if sets not in stated}
    unread |= _misspelt(recipe, stated)
    return Step(recipe.path, name, stated, unread, tuple(not_priced))


def _splits(recipe: Recipe) -> Iterator[Stated]:
    """The splits over several GPUs that no row of the format reads."""
    read = {key for row in recipe.format.step for keys in row.keys for key in keys}
    for path, node in recipe.root.leaves():
        match = _SPLITS.search(path.rpartition(".")[2])
        degree = _plain(recipe, node) if match is not None and path not in read else None
        if match is not None and type(degree) is int and degree > 1:
            kind = match[1] or _SHORT[match[2]]
            yield Stated(f"{kind} parallelism", f"{path}: {degree}", recipe.path, node.span.line)


def _misspelt(recipe: Recipe, stated: Mapping[str, Stated]) -> dict[str, Stated]:
    """Name left at its default -> the misspelt key that would have set it."""
    found: dict[str, Stated] = {}
    for node, written, meant in misspelt_keys(recipe):
        value = _plain(recipe, node)
        for row in recipe.format.step if value is not None else ():
            is_set = row.sets in stated and not stated[row.sets].is_default
            if not is_set and any(meant in keys for keys in row.keys):
                words = f"{written}: {_shown(value)}"
                found[row.sets] = Stated(value, words, recipe.path, node.span.line)
    return found


def _condition(row: Row, recipe: Recipe) -> Node | None:
    """The node on which the condition of a row rests; None if the condition does not hold."""
    found = recipe.format.anchor(recipe.chosen)
    for key, pattern in row.when.items():
        node = recipe.chosen.at(key)
        value = None if node is None else _plain(recipe, node)
        if node is None or not _fits(pattern, value):
            return None
        found = node
    return found


def _given(row: Row, recipe: Recipe) -> Iterator[Stated]:
    """The setting that the first present key of a row states."""
    for keys in row.keys:
        nodes = [(key, node) for key in keys if (node := recipe.chosen.at(key)) is not None]
        values = [value for _, node in nodes if (value := _plain(recipe, node)) is not None]
        if not values or nodes[0][0] != keys[0]:
            continue
        words = ", ".join(f"{key}: {_shown(value)}" for (key, _), value in zip(nodes, values, strict=False))
        whole = values[0] if len(keys) == 1 else " ".join(_text(value) for value in values)
        if row.sums:
            whole = sum(value for value in values if isinstance(value, int))
        yield Stated(whole, words, recipe.path, nodes[0][1].span.line)


def _plain(recipe: Recipe, node: Node) -> object:
    """A scalar or list of scalars; None for mappings. A reference that is not resolved stays text."""
    if isinstance(node.value, list):
        return [value for item in node.value if (value := _plain(recipe, item)) is not None]
    found = resolved(recipe.root, node)
    if found is None:
        return str(node.value)
    if found.value is None or isinstance(found.value, dict | list):
        return None
    return found.value if isinstance(found.value, bool | int | float) else str(found.value)


def _read(row: Row, value: object) -> object:
    """The value into which a row translates the file's value; None if the row does not know it."""
    if row.values is None:
        return value
    if isinstance(value, list):
        return [next(_known(row.values, item), item) for item in value]
    return next(_known(row.values, value), None)


def _known(values: Mapping[str, object], value: object) -> Iterator[object]:
    return (known for pattern, known in values.items() if _fits(pattern, value))


def _fits(pattern: str, value: object) -> bool:
    return fnmatchcase(_text(value).lower(), pattern.lower())


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else _text(value)
    return text if len(text) <= 60 else text[:57] + "..."
