"""A plan's edits as files: what they make of the text, as a diff or on the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from tclint.core.errors import UsageError
from tclint.core.files import write_all_atomically
from tclint.core.finding import Edit
from tclint.core.text import printable
from tclint.engine.fixes.plan import FixPlan
from tclint.engine.fixes.search import contents_of, texts_of
from tclint.engine.fixing import FixedFile


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
