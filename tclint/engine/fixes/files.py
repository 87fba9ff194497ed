"""What fixes make of files: edits as contents, as a diff, and on the disk."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tclint.core.errors import UsageError
from tclint.core.files import write_all_atomically
from tclint.core.finding import Edit
from tclint.core.text import printable
from tclint.core.units import plural
from tclint.edits.texts import apply_edits
from tclint.engine.check import relative_path
from tclint.engine.fixes.plan import FixPlan
from tclint.source.syntax.encoding import encoded_like
from tclint.source.syntax.parse import NotPython, decode

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class FixedFile:
    """One file whose text fixes change."""

    path: str
    """Absolute."""
    before: bytes
    after: bytes
    fixed: int
    """Findings fixed."""


def texts_of(files: Iterable[str]) -> dict[str, str]:
    """By absolute path: the files that can be read as text."""
    texts = {}
    for path in files:
        try:
            with open(path, "rb") as file:
                texts[path] = decode(file.read())
        except (OSError, NotPython):
            continue
    return texts


def is_small(path: str, most_bytes: int) -> bool:
    """Whether there is such a file, and it is not too large."""
    try:
        return os.path.getsize(path) <= most_bytes
    except OSError:
        return False


def contents_of(texts: Mapping[str, str], edits: Sequence[Edit]) -> dict[str, bytes] | None:
    """By path: what edits make of the files; None where the edits do not fit together."""
    contents = {}
    for path in dict.fromkeys(edit.path for edit in edits):
        own = tuple(dict.fromkeys(edit for edit in edits if edit.path == path))
        if any(_overlap(one, other) for one, other in combinations(own, 2)):
            return None
        if path.endswith(".py"):
            text, made = apply_edits(texts[path], [own])
            if not made:
                return None
        else:
            text = _edited(texts[path], own)
        with open(path, "rb") as file:
            contents[path] = encoded_like(text, file.read())
    return contents


def _overlap(one: Edit, other: Edit) -> bool:
    return one.start < other.end and other.start < one.end


def _edited(text: str, edits: Sequence[Edit]) -> str:
    """A text that is not Python, with numbers in the place of numbers."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        line = lines[edit.start[0] - 1]
        lines[edit.start[0] - 1] = line[: edit.start[1] - 1] + edit.replacement + line[edit.end[1] - 1 :]
    return "\n".join(lines)


def edited_files(plan: FixPlan) -> list[FixedFile]:
    """What the proved edits of a plan make of the files.

    Raises:
        UsageError: a file is gone, or is not what it was when the plan was made.
    """
    edits = [
        Edit(os.path.abspath(edit.path), (edit.line, edit.column), (edit.end_line, edit.end_column), edit.new)
        for edit in plan.edits
    ]
    before: dict[str, bytes] = {}
    for path, digest in plan.digests.items():
        try:
            with open(path, "rb") as file:
                before[os.path.abspath(path)] = file.read()
        except OSError as error:
            raise UsageError(f"Cannot read {printable(path)!r}: {error.strerror or error}.") from error
        if hashlib.sha256(before[os.path.abspath(path)]).hexdigest() != digest:
            raise UsageError(
                f"{printable(path)!r} has changed since the plan was made; nothing was written, plan again."
            )
    contents = contents_of(texts_of(before), edits)
    if contents is None:
        raise UsageError("The plan's edits do not fit together; nothing was written, plan again.")
    steps = [step for step in plan.steps if step.proved]
    return [
        FixedFile(
            path,
            before[path],
            contents[path],
            sum(any(os.path.abspath(edit.path) == path for edit in step.edits) for step in steps),
        )
        for path in sorted(contents)
    ]


def write_files(files: Sequence[FixedFile]) -> None:
    """Write all of them or none.

    Raises:
        UsageError: one cannot be written; every file is as it was.
    """
    write_all_atomically({file.path: file.after for file in files})


def write_each(files: Sequence[FixedFile]) -> tuple[list[FixedFile], list[str]]:
    """Write files, each wholly or not at all; one that has changed meanwhile is left alone.

    Returns:
        Those that were written, and a sentence for each of the others.
    """
    written, refused = [], []
    for file in files:
        try:
            with open(file.path, "rb") as stream:
                unchanged = stream.read() == file.before
            if unchanged:
                write_files([file])
                written.append(file)
            else:
                refused.append(
                    f"{shown(file.path)} changed while it was being fixed; left as it is, run tclint again."
                )
        except OSError as error:
            refused.append(f"{shown(file.path)}: {error}")
        except UsageError as error:
            refused.append(str(error))
    return written, refused


def files_text(files: Sequence[FixedFile]) -> str:
    """'lm.py, train.py', or how many there are."""
    if len(files) > _MOST_NAMED:
        return plural(len(files), "file")
    return ", ".join(shown(file.path) for file in files)


def unified_diff(files: Sequence[FixedFile]) -> bytes:
    """What would change, as `patch -p0` and `git apply -p0` read it."""
    parts: list[bytes] = []
    for file in files:
        name = os.fsencode(shown(file.path))
        before, after = (_lines(data) for data in (file.before, file.after))
        for line in difflib.diff_bytes(difflib.unified_diff, before, after, name, name, n=3, lineterm=b"\n"):
            parts.append(line)
            if not line.endswith(b"\n"):
                parts.append(b"\n\\ No newline at end of file\n")
    return b"".join(parts)


def _lines(data: bytes) -> list[bytes]:
    """Lines as diff counts them: ended by a line feed and nothing else."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def shown(path: str) -> str:
    """From the working directory, safe for a terminal."""
    return printable(relative_path(path))
