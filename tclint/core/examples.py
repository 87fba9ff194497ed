"""The code of a README: what its authors show of how their code is used."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

README = "README.md"
_CODE = re.compile(
    r"^[ \t]*```[ \t]*(?:python|py)[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL | re.IGNORECASE
)


def python_blocks(text: str) -> Iterator[tuple[int, str]]:
    """The number of lines before each Python block, and its code."""
    for found in _CODE.finditer(text):
        yield text.count("\n", 0, found.start(1)), textwrap.dedent(found[1])


_BLOCK = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)


def code_of(text: str) -> str:
    """A text with its blocks of code alone, on the lines where they stand."""
    lines = [""] * (text.count("\n") + 1)
    for found in _BLOCK.finditer(text):
        before, code = text.count("\n", 0, found.start(1)), found[1].splitlines()
        lines[before : before + len(code)] = code
    return "\n".join(lines)
