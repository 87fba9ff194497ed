"""Finds numbers and expressions that may define a size, by value and by the names at the lines using it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tclint.edits.sizes.written import Written, bind_positional, written_in

FileLine = tuple[str, int]
"""A file and a line of it."""

_MULTIPLES = (4, 8, 16, 32, 64, 128)
_FARTHEST = 8
_BEFORE_SHIFTS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
UNRELATED = 50.0
"""At this distance or more, only its value connects a number with the size."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place that may define a size, and the text to replace it."""

    written: Written
    new: str
    distance: float
    """The distance from the lines that make layers of that size: 0 on these lines, plus one for every name in
    between."""

    def collides(self, other: Candidate) -> bool:
        mine, theirs = self.written, other.written
        return mine.path == theirs.path and mine.start < theirs.end and theirs.start < mine.end


class WrittenSizes:
    """The sizes that are written in some files."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._files = [written_in(path, text) for path, text in texts.items()]
        bind_positional([file for file in self._files if file.path.endswith(".py")], dict(texts))
        self._sources: dict[str, set[str]] = {}
        for file in self._files:
            for name, names in file.sources.items():
                self._sources.setdefault(name, set()).update(names)

    def candidates(self, places: Collection[FileLine], pairs: Collection[tuple[int, int]]) -> list[Candidate]:
        """The places that may define one of the old sizes, most likely first.

        Args:
            places: lines that make layers of these sizes.
            pairs: (old, new) sizes.
        """
        lines = {place: self._calls_at(*place) for place in places}
        distances = self._distances_from(lines.values())
        spans = {
            (path, line)
            for (path, _), calls in lines.items()
            for call in calls
            for line in range(call[0], call[1] + 1)
        }
        found: dict[tuple[object, ...], Candidate] = {}
        for file in self._files:
            for written in file.written:
                for new in _replacements(written, pairs):
                    distance = _distance(written, spans, distances)
                    if written.kind == "expression" and distance >= UNRELATED:
                        continue
                    candidate = Candidate(written, new, distance)
                    key = (written.path, written.start, written.end, new)
                    if key not in found or found[key].distance > distance:
                        found[key] = candidate
        return sorted(found.values(), key=lambda item: (item.distance, item.written.path, item.written.start))

    def way(self, places: Collection[FileLine]) -> frozenset[str]:
        """The names that lead to the sizes in the calls on these lines."""
        return frozenset(self._distances_from(self._calls_at(*place) for place in places))

    def _distances_from(self, lines: Iterable[Sequence[tuple[int, int, frozenset[str]]]]) -> dict[str, int]:
        return self._distances({name for calls in lines for call in calls for name in call[2]})

    def _calls_at(self, path: str, line: int) -> list[tuple[int, int, frozenset[str]]]:
        file = next((file for file in self._files if file.path == path), None)
        calls = [call for call in file.calls if call.first_line <= line <= call.last_line] if file else []
        starting = [call for call in calls if call.first_line == line]
        chosen = starting or sorted(calls, key=lambda call: call.last_line - call.first_line)[:1]
        return [(call.first_line, call.last_line, call.names) for call in chosen]

    def _distances(self, start: Iterable[str]) -> dict[str, int]:
        """Name -> the number of names between it and the lines of the layers."""
        found: dict[str, int] = {}
        wave = set(start)
        for distance in range(1, _FARTHEST):
            found.update(dict.fromkeys(wave - found.keys(), distance))
            wave = {name for old in wave for name in self._sources.get(old, ())} - found.keys()
            if not wave:
                break
        return found


def _replacements(written: Written, pairs: Collection[tuple[int, int]]) -> list[str]:
    if written.kind == "number":
        separated = "_" in written.text
        news = dict.fromkeys(new for old, new in pairs if old == written.value)
        return [f"{new:_}" if separated else str(new) for new in news]
    multiples = dict.fromkeys(multiple_of(old, new) for old, new in pairs)
    return [
        rounded_up(written.text, multiple, inside=not written.whole) for multiple in multiples if multiple
    ]


def multiple_of(old: int, new: int) -> int | None:
    """The multiple to which a size has to be rounded up to become another one; None if there is none."""
    return next((multiple for multiple in _MULTIPLES if -(-old // multiple) * multiple == new), None)


def rounded_up(text: str, multiple: int, *, inside: bool = False) -> str:
    """An expression rounded up to a multiple, in parentheses if it is inside another one."""
    expression = ast.parse(f"({text})", mode="eval").body
    binds_tighter = not isinstance(expression, ast.BinOp) or isinstance(expression.op, _BEFORE_SHIFTS)
    if not binds_tighter or isinstance(expression, ast.BoolOp | ast.IfExp | ast.Compare | ast.Lambda):
        text = f"({text})"
    rounded = f"({text} + {multiple - 1}) // {multiple} * {multiple}"
    return f"({rounded})" if inside else rounded


def _distance(written: Written, spans: Collection[FileLine], distances: Mapping[str, int]) -> float:
    computed = 0.5 if written.kind == "expression" or not written.whole else 0.0
    lines: Sequence[int] = range(written.start[0], written.end[0] + 1)
    if all((written.path, line) in spans for line in lines):
        return computed
    return distances.get(written.name, UNRELATED) + computed
