"""Reads shell scripts: the options of the command that starts a training, as a mapping."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from tclint.source.recipes.tree import Node, NotReadable
from tclint.source.recipes.yaml_text import parse_yaml
from tclint.source.syntax.positions import Span

_ASSIGNED = re.compile(
    r"^\s*(?:export\s+)?(\w+)=(\"[^\"$]*\"|'[^']*'|[^\s\"'$;|&]+)\s*(?:#.*)?$", re.MULTILINE
)
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def parse_shell(text: str) -> Node:
    """The options of the command with the most of them, by name without dashes; flags are true.

    A variable counts if the script gives it exactly one value; all else that the shell inserts is None.

    Raises:
        NotReadable: a quote is not closed.
    """
    values: dict[str, set[str]] = {}
    for name, value in _ASSIGNED.findall(text):
        values.setdefault(name, set()).add(value.strip("\"'"))
    known = {name: found.pop() for name, found in values.items() if len(found) == 1}
    commands = [_options(words, known) for words in _commands(text)]
    return Node(max(commands, key=len, default={}), Span(1, 1, 1, 1))


def _commands(text: str) -> Iterator[list[tuple[str, Span]]]:
    """The words of each command with their places; lines joined by a backslash count as one."""
    words: list[tuple[str, Span]] = []
    for number, line in enumerate(text.splitlines(), 1):
        goes_on = line.rstrip().endswith("\\")
        content = line.rstrip().removesuffix("\\")
        try:
            parts = shlex.split(content, comments=True)
        except ValueError as error:
            if words or content.lstrip().startswith("--"):
                raise NotReadable(str(error).lower(), number) from error
            parts = []  # a quoted text of several lines sets no option
        column = 0
        for part in parts:
            found = content.find(part, column)
            column = found if found >= 0 else column
            words.append((part, Span(number, column + 1, number, column + 1 + len(part))))
        if not goes_on:
            yield words
            words = []
    yield words


def _options(words: list[tuple[str, Span]], known: dict[str, str]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for index, (word, span) in enumerate(words):
        if not word.startswith("--"):
            continue
        name, has_value, value = word[2:].partition("=")
        following = words[index + 1][0] if index + 1 < len(words) else "--"
        if not has_value:
            value = "true" if following.startswith(("--", "&", "|", ">", "2>")) else following
        filled = _VARIABLE.sub(lambda match: known.get(match[1], match[0]), value)
        found[name.replace("-", "_")] = Node(None if "$" in filled else _scalar(filled), span)
    return found


def _scalar(text: str) -> object:
    try:
        value = parse_yaml(text).value
    except NotReadable:
        return text
    return value if isinstance(value, bool | int | float) else text
