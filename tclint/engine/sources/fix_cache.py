"""Fixes of source findings, kept between runs: they are planned anew only for another text or other findings.

A record is named by a hash of everything that a fix depends on, so that it is never out of date.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.files import forget_oldest, read_record, write_record
from tclint.core.finding import Finding
from tclint.core.saved import from_json, to_json
from tclint.engine.provenance import is_hashed, tool_hash
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.cache import private_folder

Finish: TypeAlias = Callable[[str, str, Sequence[Finding]], list[Finding]]
"""Completes one file's findings, for example with fixes: (path, text, findings) -> findings."""

_KEPT = 16_384
"""The most records to keep; the oldest are removed first."""


@dataclass(frozen=True, slots=True)
class FixCache:
    """A `Finish` that remembers what another one returned in earlier runs."""

    make: Finish
    local: frozenset[str]
    """Codes of rules that tclint's hash does not cover: their fixes may change at any time."""
    folder: Path | None
    """None where nothing is kept."""

    @classmethod
    def of(cls, make: Finish, rules: Sequence[SourceRule], settings: Settings) -> FixCache:
        """The user's cache, for the findings of some rules."""
        folder = private_folder("fixes") if settings.cache and is_hashed(make) else None
        return cls(make, frozenset(rule.code for rule in rules if not is_hashed(rule)), folder)

    def __call__(self, path: str, text: str, findings: Sequence[Finding]) -> list[Finding]:
        """What `make` returns."""
        file = self._file(path, text, findings)
        if file is None:
            return self.make(path, text, findings)
        with contextlib.suppress(*_UNREADABLE):
            kept = from_json(read_record(file))
            if isinstance(kept, list):
                return kept
        made = self.make(path, text, findings)
        with contextlib.suppress(OSError, UsageError, TypeError, ValueError):
            write_record(file, to_json(made))
        return made

    def limit(self) -> None:
        """Remove the oldest records if there are too many."""
        if self.folder is not None:
            forget_oldest(self.folder, _KEPT)

    def _file(self, path: str, text: str, findings: Sequence[Finding]) -> Path | None:
        if self.folder is None or any(finding.code in self.local for finding in findings):
            return None
        try:
            depends = json.dumps([tool_hash(), sys.version, path, text, to_json(findings)])
        except TypeError:  # evidence that JSON cannot hold
            return None
        return self.folder / f"{hashlib.sha256(depends.encode()).hexdigest()}.json.gz"


_UNREADABLE = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, ImportError)
