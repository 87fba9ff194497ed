"""Where the code of a project is looked for: its top folder, and what scripts add to `sys.path`."""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tclint.core.examples import README

PROJECT_MARKS = frozenset(
    [".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml"]
)
"""Names of files and folders that mark the top folder of a project."""
MARKS_OR_README = PROJECT_MARKS | {README}
_LEVELS = 6
"""Folders looked at on the way up: deeper than sources lie in their projects."""
_MOST_FILES = 60
"""Of a folder: one with more holds no entry scripts, but data or a library."""
_ADDS = re.compile(r"(?:^|[;:])[ \t]*(sys\.path\.(?:append|insert|extend)\()", re.MULTILINE)
_LONGEST_CALL = 1000
"""In characters."""
_NAMES: dict[str, Any] = {"os": os, "Path": Path, "pathlib": pathlib, "str": str, "osp": os.path}
"""What such an expression may name, beside `__file__`."""
_CALLS = frozenset(
    [
        "Path", "abspath", "absolute", "as_posix", "dirname", "getcwd", "join", "normpath", "realpath",
        "resolve", "str",
    ]
)  # fmt: skip


def project_folder(folder: Path) -> Path | None:
    """The top folder of the project that a folder is in; None where none is to be seen."""
    levels = [folder, *folder.parents][:_LEVELS]
    return next((level for level in levels if any((level / mark).exists() for mark in PROJECT_MARKS)), None)


def added_folders(folders: Sequence[Path], read: Callable[[Path, str], str]) -> list[str]:
    """The folders that scripts in these folders add, as far as they are there.

    Relative ones are looked for from the working directory, from where the script lies, and from the folders.

    Args:
        read: the text of a file in a folder, by both names.
    """
    found: list[str] = []
    for folder in dict.fromkeys(folders):
        scripts = sorted(folder.glob("*.py"))
        for script in scripts if len(scripts) <= _MOST_FILES else ():
            for text in _added_by(script, read(folder, script.name)):
                places = [Path.cwd(), script.parent, *folders]
                there = (place / text for place in places if (place / text).is_dir())
                if (first := next(there, None)) is not None:
                    found.append(str(first.resolve()))
    return list(dict.fromkeys(found))


def _added_by(script: Path, source: str) -> Iterator[str]:
    for match in _ADDS.finditer(source) if "sys.path" in source else ():
        call = _call_at(source, match.start(1))
        for given in call.args[-1:] if call is not None else ():
            for part in given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]:
                if (text := _folder(part, script)) is not None:
                    yield text


def _call_at(source: str, start: int) -> ast.Call | None:
    """The call that begins there. The rest of the file is not parsed, which takes most of the time."""
    for end in re.finditer(r"\)", source[start : start + _LONGEST_CALL]):
        with contextlib.suppress(SyntaxError, ValueError):
            call = ast.parse(source[start : start + end.end()], mode="eval").body
            return call if isinstance(call, ast.Call) else None
    return None


def _folder(node: ast.expr, script: Path) -> str | None:
    """What an expression of paths is; None where it is made of anything else."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id not in _NAMES and part.id != "__file__":
            return None
        if isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] not in _CALLS:
            return None
    code = compile(ast.Expression(node), str(script), "eval")
    try:
        return str(os.fspath(eval(code, {**_NAMES, "__file__": str(script), "__builtins__": {}})))
    except Exception:  # an expression that means something else than its names say
        return None
