"""One program of a source pass: its files are parsed and run, and the rules ask what it does."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from tclint.config.settings import Settings
from tclint.core.finding import Finding, Location
from tclint.core.rule import apply_rule
from tclint.source.context import SourceContext
from tclint.source.project.neighbours import Neighbours, is_test_path
from tclint.source.run.files import File
from tclint.source.run.program import Program
from tclint.source.run.project import ProjectFiles
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.cache import TablesCache
from tclint.source.syntax.discovery import Skipped
from tclint.source.syntax.notebooks import Notebook
from tclint.source.syntax.parse import NotPython, Parsed, decode, parse
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES

_KEPT_FILES = 512
"""Tables that are kept for the programs that follow: those of one project read the same files."""
_RECURSION_LIMIT = 6_000
"""A sum of a thousand terms nests a thousand levels, at up to five frames each."""

Outcome: TypeAlias = "list[Finding] | Skipped | NotPython"
"""What is found in a file, or why it could not be read."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file that rules concern."""

    path: str
    written: bytes
    """As it stands on the disk."""
    data: bytes
    """Its program: of a notebook the code of its cells."""
    notebook: Notebook | None
    rules: tuple[SourceRule, ...]


@dataclass
class SourceProgram:
    """Files that run together, with what became of each."""

    context: SourceContext | None
    """None where no file of it could be read."""
    linted: dict[str, File] = field(default_factory=dict)
    """Those that are linted, by path."""
    unreadable: dict[str, Outcome] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        root: str,
        paths: Sequence[str],
        settings: Settings,
        parse_text: Callable[[str], Parsed],
        contents: Mapping[str, bytes],
    ) -> SourceProgram:
        """Run the program that starts in `root`, and all of some files that it reads.

        Args:
            paths: the files that are linted; those that the program does not read are no part of it.
            contents: by path, bytes that stand for what is on the disk.
        """
        unreadable: dict[str, Outcome] = {}

        def parsed(path: str, data: bytes) -> Parsed | None:
            if len(data) > MAX_SOURCE_BYTES:
                size = f"{MAX_SOURCE_BYTES // 1000} kB"
                unreadable[path] = Skipped(path, f"it is larger than {size}; such files are not parsed")
                return None
            try:
                return parse_text(decode(data))
            except NotPython as error:
                unreadable[path] = error if error.line else Skipped(path, str(error))
            except Exception as error:
                # One strange file must not end the run; the user sees which one it was.
                unreadable[path] = _failed(path, error)
            return None

        files = ProjectFiles(parsed, contents)
        linted = {path: file for path in paths for file in [files.file(path)] if file is not None}
        if not linted:
            return cls(None, {}, unreadable)
        start = files.file(root) or next(iter(linted.values()))
        try:
            program = Program.of(start, files, linted.values())
        except Exception as error:
            return cls(None, {}, {path: _failed(path, error) for path in linted} | unreadable)
        linted = {path: file for path, file in linted.items() if path in program.within}
        return cls(SourceContext(program, settings), linted, unreadable)

    def findings(self, texts: Mapping[str, SourceText]) -> Iterator[Finding]:
        """What the rules find in the files that concern them."""
        if self.context is None:
            return
        for rule in dict.fromkeys(rule for text in texts.values() for rule in text.rules):
            yield from apply_rule(rule, self.context, Location(self.context.path, 1))


def lint_programs(
    texts: Mapping[str, SourceText],
    settings: Settings,
    cache: TablesCache | None,
    contents: Mapping[str, bytes],
) -> dict[str, Outcome]:
    """What is found in files, each as part of the program that it belongs to."""
    outcomes: dict[str, Outcome] = {}
    programs: dict[str, list[str]] = {}
    for path, text in texts.items():
        programs.setdefault(root_of(path, text.notebook), []).append(path)
    parse_text = lru_cache(_KEPT_FILES)(cache.parse if cache is not None else parse)
    waiting = list(programs.items())
    while waiting:
        root, paths = waiting.pop()
        given = {**contents, **{path: texts[path].data for path in paths}}
        with for_deep_code():
            program = SourceProgram.of(root, paths, settings, parse_text, given)
            found: dict[str, list[Finding]] = {path: [] for path in program.linted}
            for finding in program.findings(texts):
                if finding.location.path in found:
                    found[finding.location.path].append(finding)
        for path, findings in found.items():
            outcomes[path] = shown(findings, path)
        # What the program does not read is looked at alone.
        waiting += [(path, [path]) for path in paths if path not in found and path not in program.unreadable]
        outcomes.update({path: program.unreadable[path] for path in paths if path in program.unreadable})
    return outcomes


def root_of(path: str, notebook: Notebook | None = None) -> str:
    """The file that starts the program which a file belongs to."""
    return path if notebook is not None else Neighbours(path).root()


def shown(findings: Sequence[Finding], path: str) -> list[Finding]:
    """Findings of one file as they are reported: by position, and what tests do as worth knowing at most."""
    ordered = sorted(findings, key=_position)
    return [_in_test(finding) for finding in ordered] if is_test_path(path) else ordered


def _in_test(finding: Finding) -> Finding:
    """Tests of a library do with scalers and autocast what training must not: worth knowing, no more."""
    return replace(finding, level="info") if finding.code.startswith("AMP") else finding


def _position(finding: Finding) -> tuple[int, int, str]:
    return finding.location.line, finding.location.column, finding.code


def _failed(path: str, error: Exception) -> Skipped:
    return Skipped(path, f"tclint failed on it with {type(error).__name__}: {error}; please report this")


@contextlib.contextmanager
def for_deep_code() -> Iterator[None]:
    """Python's limits as large programs need them."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    # Trees grow, and hardly any of it is garbage: the collector's walks take a fifth of the time (timm).
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        sys.setrecursionlimit(limit)


def lint_text(
    text: str,
    rules: Sequence[SourceRule],
    settings: Settings,
    path: str = "<text>",
    parse_text: Callable[[str], Parsed] = parse,
) -> list[Finding]:
    """Findings of one program given as text.

    Raises:
        NotPython: it cannot be parsed.
    """
    with for_deep_code():
        parsed = parse_text(text)
        file = File(path, parsed.tables, lambda: parsed.spans, lambda: parsed.lines)
        files = ProjectFiles(lambda _, data: _parsed(data, parse_text))
        files.keep(path, file)
        context = SourceContext(Program.of(file, files), settings)
        found = [finding for rule in rules for finding in apply_rule(rule, context, Location(path, 1))]
    return shown(found, path)


def _parsed(data: bytes, parse_text: Callable[[str], Parsed]) -> Parsed | None:
    try:
        return parse_text(decode(data))
    except NotPython:
        return None
