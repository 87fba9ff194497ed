"""Reads shell scripts: the options of the command that starts a training, as a mapping."""

from __future__ import annotations

from tclint.source.recipes.tree import Node, NotReadable
from tclint.source.recipes.yaml_text import parse_yaml
from tclint.source.syntax.positions import Span
from tclint.source.syntax.shell import UnclosedQuote, Word, commands_in


def parse_shell(text: str) -> Node:
    """The options of the command with the most of them, by name without dashes; flags are true.

    A variable counts if the script gives it exactly one value; all else that the shell inserts is None.

    Raises:
        NotReadable: a quote is not closed.
    """
    try:
        commands = [_options(words) for words in commands_in(text)]
    except UnclosedQuote as error:
        raise NotReadable(str(error), error.line) from error
    return Node(max(commands, key=len, default={}), Span(1, 1, 1, 1))


def _options(words: list[Word]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for index, word in enumerate(words):
        if not word.text.startswith("--"):
            continue
        name, has_value, value = word.text[2:].partition("=")
        following = words[index + 1] if index + 1 < len(words) else Word("--", word.span)
        if not has_value:
            value = "true" if following.text.startswith("--") or following.is_end else following.text
        found[name.replace("-", "_")] = Node(None if "$" in value else _scalar(value), word.span)
    return found


def _scalar(text: str) -> object:
    try:
        value = parse_yaml(text).value
    except NotReadable:
        return text
    return value if isinstance(value, bool | int | float) else text
