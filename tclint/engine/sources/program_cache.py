"""Findings of programs, kept between runs: a program is not run again until something that it read changes.

A record holds the findings in the files of one program, a hash of every file that the program read, the file
that each of its imports meant, and the answers about requirement files and launchers that rules asked for.
Its name depends on the program, the rules, the settings and the code of tclint itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.files import forget_oldest, read_record, write_record
from tclint.core.finding import Finding
from tclint.core.saved import from_json, to_json
from tclint.core.text import digest
from tclint.engine.provenance import is_hashed, tool_hash
from tclint.source.project.configurations import naming
from tclint.source.project.effects import acting, registering
from tclint.source.project.imports import file_of
from tclint.source.project.launchers import launchers_in
from tclint.source.project.noted import Question
from tclint.source.project.requirements import pins_above
from tclint.source.project.stars import may_define
from tclint.source.run.project import ProjectFiles, starting
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.cache import private_folder
from tclint.source.syntax.discovery import Skipped
from tclint.source.syntax.parse import NotPython

FileOutcome: TypeAlias = "list[Finding] | Skipped | NotPython"
"""The findings of a file, or the reason why it could not be read."""


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """What the run of a program tells of its files."""

    outcomes: Mapping[str, FileOutcome]
    """Path of each linted file -> its findings, or the reason why it could not be read."""
    unreached: frozenset[str]
    """The linted files of which the program itself runs nothing that matters to rules."""
    cut: Skipped | None
    """A note on the part that was left out."""
    models: tuple[str, ...] = ()
    """Targets of the models that it trains, as `tclint.source.questions.targets` names them."""


_KEPT = 16_384
"""The most records to keep; the oldest are removed first."""
_QUESTIONS: dict[str, Callable[..., object]] = {
    "configurations": naming,
    "effects": acting,
    "launchers": lambda folder: launchers_in(Path(folder)),
    "pins": pins_above,
    "registering": registering,
    "starting": starting,
    "stars": may_define,
}


@dataclass
class ProgramCache:
    """The findings of earlier runs in programs, in the user's cache folder.

    Args:
        given: path -> bytes to use instead of those on the disk.
    """

    folder: Path
    given: Mapping[str, bytes]
    named: str
    """A digest of everything that all records of this run depend on."""
    _digests: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, given: Mapping[str, bytes]) -> ProgramCache | None:
        """The user's cache; None if it is switched off or has no folder that is safe to use."""
        folder = private_folder("programs") if settings.cache else None
        if folder is None:
            return None
        depends = (tool_hash(), sys.version, os.getcwd(), json.dumps(to_json(settings)))
        kept = cls(folder, given, "")
        kept.named = digest("\0".join((*depends, *map(kept._content, settings.libraries))))
        return kept

    def load(
        self, root: str, paths: Collection[str], rules: Sequence[SourceRule], guests: Collection[str]
    ) -> ProgramOutcome | None:
        """The outcome of a program; None if there is no record, or if anything that it depends on has
        changed."""
        try:
            record = read_record(self._file(root, paths, rules, guests))
            if any(self._content(path) != known for path, known in record["files"].items()):
                return None
            if any(file_of(importer, name) != path for importer, name, path in record["imports"]):
                return None
            if any(_answer(*question) != answer for question, answer in record["asked"]):
                return None
            cut = Skipped(root, record["cut"], is_part=True) if record["cut"] is not None else None
            outcomes = {path: _outcome(path, *kept) for path, *kept in record["outcomes"]}
            return ProgramOutcome(outcomes, frozenset(record["unreached"]), cut, tuple(record["models"]))
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, ImportError):
            return None

    def store(
        self,
        root: str,
        paths: Collection[str],
        rules: Sequence[SourceRule],
        files: ProjectFiles,
        asked: Mapping[Question, object],
        outcome: ProgramOutcome,
        guests: Collection[str],
    ) -> None:
        """Store the outcome of a program."""
        if not all(map(is_hashed, rules)):
            return
        try:
            record = {
                "files": files.digests,
                "imports": [[*importer, path] for importer, path in files.imports.items()],
                "asked": [[question, _digest_of(answer)] for question, answer in asked.items()],
                "cut": outcome.cut.reason if outcome.cut is not None else None,
                "unreached": sorted(outcome.unreached),
                "models": outcome.models,
                "outcomes": [[path, *_kept(known)] for path, known in outcome.outcomes.items()],
            }
            write_record(self._file(root, paths, rules, guests), record)
        except (OSError, UsageError, TypeError, ValueError):
            return

    def limit(self) -> None:
        """Remove the oldest records if there are too many."""
        forget_oldest(self.folder, _KEPT)

    def _file(
        self, root: str, paths: Collection[str], rules: Sequence[SourceRule], guests: Collection[str]
    ) -> Path:
        asked = [self.named, root, *sorted(paths), "", *sorted(guests), "", *(rule.code for rule in rules)]
        return self.folder / f"{digest(chr(0).join(asked))}.json.gz"

    def _content(self, path: str) -> str:
        """A hash of a file's contents; '' if it cannot be read."""
        found = self._digests.get(path)
        if found is None:
            try:
                data = self.given[path] if path in self.given else Path(path).read_bytes()
                found = hashlib.sha256(data).hexdigest()
            except OSError:
                found = ""
            self._digests[path] = found
        return found


def _answer(kind: str, *of: str) -> str:
    return _digest_of(_QUESTIONS[kind](*of))


def _digest_of(answer: object) -> str:
    return digest(repr(answer))


def _kept(outcome: FileOutcome) -> tuple[str, Any]:
    if isinstance(outcome, Skipped):
        return "skipped", outcome.reason
    if isinstance(outcome, NotPython):
        return "broken", [str(outcome), outcome.line, outcome.column]
    return "found", to_json(outcome)


def _outcome(path: str, kind: str, kept: Any) -> FileOutcome:
    if kind == "skipped":
        return Skipped(path, kept)
    if kind == "broken":
        return NotPython(*kept)
    found: list[Finding] = from_json(kept)
    return found
