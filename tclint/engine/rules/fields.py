"""Checks that a rule class states every required field; an error is one sentence with file and field."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, get_args

from tclint.analysis.graph_rule import GraphRule
from tclint.core.errors import UsageError
from tclint.core.finding import Confidence, Level
from tclint.core.rule import CODE_PATTERN, DOC_SECTIONS, NAME_PATTERN, REFERENCES, Rule
from tclint.source.source_rule import SourceRule

_MISSING = object()


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(_is_text(item) for item in value)


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


_Check = tuple[Callable[[Any], bool], str]

_FIELDS: dict[str, _Check] = {
    "code": (_matches(CODE_PATTERN), "two to six capital letters and three digits, such as 'ABC001'"),
    "name": (_matches(NAME_PATTERN), "words in kebab-case, such as 'large-dropout'"),
    "level": (lambda value: value in get_args(Level), f"one of {', '.join(map(repr, get_args(Level)))}"),
    "confidence": (
        lambda value: value in get_args(Confidence),
        f"one of {', '.join(map(repr, get_args(Confidence)))}",
    ),
    "sources": (
        lambda value: _is_texts(value) and bool(value),
        "a tuple with at least one document that the rule rests on, such as ('Handbook, chapter 3: widths',)",
    ),
    "enabled_by_default": (lambda value: isinstance(value, bool), "True or False"),
}
"""Required field -> its check and a description of valid values."""

_SOURCE_FIELDS: dict[str, _Check] = {
    "triggers": (
        lambda value: _is_texts(value) and bool(value),
        "a tuple of tokens one of which a file must contain, such as ('GradScaler',)",
    ),
    "requires": (_is_texts, "a tuple of tokens all of which a file must contain"),
    "program": (_is_texts, "a tuple of tokens one of which a file of the program must contain"),
    "pattern": (
        lambda value: value is None or (isinstance(value, re.Pattern) and isinstance(value.pattern, bytes)),
        "None or a compiled pattern of bytes, such as re.compile(rb'scaler\\s*=')",
    ),
    "priced_as": (
        lambda value: isinstance(value, tuple) and all(_matches(CODE_PATTERN)(code) for code in value),
        "a tuple of codes of other rules, such as ('DIM003',)",
    ),
}
"""The same for the further fields of a SourceRule."""


def check_fields(rule: type[Rule]) -> None:
    """Check every field of a rule class, its page and that it overrides `check`.

    Raises:
        UsageError: a field is missing or invalid.
    """
    for field, expected, found in _mistakes(rule):
        file = getattr(sys.modules.get(rule.__module__), "__file__", None) or rule.__module__
        raise UsageError(f"{file}: rule {rule.__name__} needs {field}: {expected}; {found}.")


def _mistakes(rule: type[Rule]) -> Iterator[tuple[str, str, str]]:
    """(field, expected value, actual value) of each mistake."""
    checks = _FIELDS if issubclass(rule, GraphRule) else {**_FIELDS, **_SOURCE_FIELDS}
    for field, (is_good, expected) in checks.items():
        value = getattr(rule, field, _MISSING)
        if value is _MISSING:
            yield f"`{field}`", expected, "it has none"
        elif not is_good(value):
            yield f"`{field}`", expected, f"it has {value!r}"
    yield from _page_mistakes(rule)
    if rule.check in (GraphRule.check, SourceRule.check):  # type: ignore[attr-defined]
        yield "a method `check(self, context)`", "it yields the findings", "it has none"


def _page_mistakes(rule: type[Rule]) -> Iterator[tuple[str, str, str]]:
    # A class without a docstring would otherwise show its base's.
    if not (rule.__doc__ or "").strip() or not _is_text(inspect.cleandoc(rule.__doc__ or "").split("\n")[0]):
        yield "a docstring", "a first line that says what it finds, then its sections", "it has none"
        return
    expected = (
        f"the sections {', '.join(repr(name) for name in DOC_SECTIONS)}, each with a text, in this order"
    )
    sections = rule.sections()
    absent = [name for name in DOC_SECTIONS if not sections.get(name, "").strip()]
    if absent:
        yield "a docstring", expected, f"it lacks {', '.join(map(repr, absent))}"
    elif tuple(sections) not in (DOC_SECTIONS, (*DOC_SECTIONS, REFERENCES)):
        yield "a docstring", expected, f"it has {', '.join(map(repr, sections))}"
