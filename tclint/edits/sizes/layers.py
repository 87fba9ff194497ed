"""Sizes in the arguments of the lines that construct layers; each argument is a place of its own.

An edit there changes no name, so all other readers of a constant, a field or an option are unaffected.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

from tclint.edits.sizes.candidates import Candidate, FileLine, multiple_of, rounded_up
from tclint.edits.sizes.syntax import calls_on, constant, end_of, start_of, text_between
from tclint.edits.sizes.written import Written

_MOST_TEXTS = 5


def layer_arguments(
    texts: Mapping[str, str], places: Collection[FileLine], pairs: Iterable[tuple[int, int]]
) -> list[Candidate]:
    """The arguments that may be one of the old sizes, with replacements that give the layers the new one.

    Args:
        texts: absolute path -> text of a file that may be edited.
        places: lines that make layers of these sizes.
        pairs: (old, new) sizes.
    """
    pairs = tuple(sorted(set(pairs)))
    found: dict[tuple[str, tuple[int, int], str], Candidate] = {}
    for path, line in sorted(places):
        text = texts.get(path)
        if text is None or not path.endswith(".py"):
            continue
        for call in calls_on(text, line):
            for argument in (*call.args, *(keyword.value for keyword in call.keywords if keyword.arg)):
                for candidate in _candidates(path, text, argument, pairs):
                    key = (path, candidate.written.start, candidate.new)
                    found.setdefault(key, candidate)
    return list(found.values())


def _candidates(
    path: str, text: str, argument: ast.expr, pairs: Collection[tuple[int, int]]
) -> Iterable[Candidate]:
    number = constant(argument)
    if number is None and not isinstance(argument, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp):
        if not (isinstance(argument, ast.Call) and isinstance(argument.func, ast.Name)):
            return
        if argument.func.id not in ("int", "round", "max", "min", "len"):
            return
    start, end = start_of(text, argument), end_of(text, argument)
    source = text_between(text, start, end)
    kind = "number" if number is not None else "expression"
    written = Written(path, start, end, source, kind, value=number)  # type: ignore[arg-type]
    news: dict[str, None] = {}
    for old, new in pairs:
        if number is not None:
            if number == old:
                news[str(new)] = None
        elif (multiple := multiple_of(old, new)) is not None:
            news[rounded_up(source, multiple)] = None
    for new_text in news:
        yield Candidate(written, new_text, 0.0)


def sets_of(candidates: Collection[Candidate]) -> list[tuple[Candidate, ...]]:
    """Sets of candidates to try: those with equal texts, single ones, and pairs of the former sets."""
    same: dict[tuple[str, str], list[Candidate]] = {}
    for item in candidates:
        same.setdefault((item.written.text, item.new), []).append(item)
    groups = [tuple(items) for items in same.values()]
    groups.sort(key=len, reverse=True)
    groups = groups[: 2 * _MOST_TEXTS]
    found = [*groups, *((item,) for item in candidates)]
    for index, one in enumerate(groups[:_MOST_TEXTS]):
        for other in groups[index + 1 : _MOST_TEXTS]:
            if one[0].written.text != other[0].written.text:
                found.append((*one, *other))
    return list(dict.fromkeys(found))
