"""What a codemod is: it looks at one finding and says which characters of its file to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tclint.core.finding import Finding
from tclint.edits.document import Change, Document


class Proposal(NamedTuple):
    """Changes that together mend a finding."""

    safety: Literal["safe", "unsafe"]
    changes: tuple[Change, ...]
    advice: str = ""
    """Where the edit does less or more than the finding's own advice says."""


Codemod: TypeAlias = Callable[[Document, Finding], Proposal | None]
"""None where it is not sure of the place, or an edit would not be what the author would write."""

CODEMODS: dict[str, Codemod] = {}
"""By rule code; filled when the modules of tclint.edits.codemods are imported."""


def codemod(*codes: str) -> Callable[[Codemod], Codemod]:
    """Register a codemod for the findings of some rules."""

    def register(function: Codemod) -> Codemod:
        for code in codes:
            assert code not in CODEMODS, code
            CODEMODS[code] = function
        return function

    return register


def safe(changes: Sequence[Change] | Change | None, advice: str = "") -> Proposal | None:
    """A safe proposal; None where there is nothing to change."""
    return _proposal("safe", changes, advice)


def unsafe(changes: Sequence[Change] | Change | None, advice: str = "") -> Proposal | None:
    """An unsafe proposal; None where there is nothing to change."""
    return _proposal("unsafe", changes, advice)


def _proposal(
    safety: Literal["safe", "unsafe"], changes: Sequence[Change] | Change | None, advice: str
) -> Proposal | None:
    if not changes:
        return None
    several = (changes,) if isinstance(changes, Change) else tuple(changes)
    # Found by several ways, what goes goes once.
    replaced = dict.fromkeys(change for change in several if change.start < change.end)
    inserted = [change for change in several if change.start == change.end]
    return Proposal(safety, (*replaced, *inserted), advice)
