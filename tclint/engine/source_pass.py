"""Lint source files: find them, filter them by their bytes, parse what is left, run the rules."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from tclint.config.settings import Settings
from tclint.core.finding import Effect, Finding, Location
from tclint.core.rule import UNREADABLE_CODE, UNREADABLE_NAME, apply_rule
from tclint.source.names.queries import is_test_path
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.cache import TablesCache
from tclint.source.syntax.discovery import Skipped, discover
from tclint.source.syntax.notebooks import Notebook, is_notebook, read_notebook
from tclint.source.syntax.parse import NotPython, Parsed, as_utf8, decode, what_is_broken
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES, applicable

if TYPE_CHECKING:
    from tclint.source.run.files import File
    from tclint.source.run.project import ProjectFiles

_KEPT_FILES = 512
"""Tables that are kept for the programs that follow: those of one project read the same files."""
_RECURSION_LIMIT = 6_000
"""A sum of a thousand terms nests a thousand levels, at up to five frames each."""

Finish: TypeAlias = Callable[[str, str, Sequence[Finding]], list[Finding]]
"""Makes something more of one file's findings: path, text, findings -> findings."""


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What the source pass found."""

    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    files: int = 0
    """Python files looked at, those that no rule concerns included."""
    parsed: int = 0
    """Files whose tables were needed, parsed now or in an earlier run."""
    paths: tuple[str, ...] = ()
    """The files that could be read, absolute."""
    marked: Mapping[str, str] = field(default_factory=dict)
    """Those that say `tclint:` somewhere, with their text: only they can hold suppressions."""
    digests: Mapping[str, bytes] = field(default_factory=dict)
    """SHA-256 of those with findings or marks, as they were read."""
    notebooks: Mapping[str, Notebook] = field(default_factory=dict)
    """Those with findings; the findings' lines are those of their programs."""


def lint(
    paths: Sequence[str],
    rules: Sequence[SourceRule],
    settings: Settings,
    *,
    contents: Mapping[str, bytes] | None = None,
    finish: Finish | None = None,
) -> SourceResult:
    """Run source rules over files and folders, executing none of them.

    A file that Python cannot read is a finding, one that only tclint cannot read is listed in `skipped`; the
    others go on. Files that no rule concerns are tried if they are named on their own or mention torch.
    Findings come in the order of the paths, files sorted within a folder, then by position.

    Args:
        contents: by absolute path, bytes that stand for those on the disk: files that are being edited.
        finish: called with the path, text and findings of every file that has some.

    Raises:
        TargetError: a path does not exist, or is neither a folder nor a Python file.
    """
    contents = contents or {}
    files, skipped = discover(paths, settings, contents)
    # Rules are asked about the settings when a file could concern them: some have to read data for it.
    applies = cache(lambda rule: rule.applies(settings))
    open_cache = cache(lambda: _cache_of(settings))
    tables_cache: TablesCache | None = None
    findings: list[Finding] = []
    marked: dict[str, str] = {}
    digests: dict[str, bytes] = {}
    unreadable: list[str] = []
    texts: dict[str, _Text] = {}
    outcomes: dict[str, list[Finding] | Skipped | NotPython] = {}
    named = {os.path.abspath(path) for path in paths}
    for path in files:
        try:
            written = contents[path] if path in contents else _read(path)
            data = as_utf8(written)
        except OSError as error:
            skipped.append(Skipped(path, f"it cannot be read ({error.strerror or error})"))
            continue
        except NotPython as problem:
            # What it says is not known; in UTF-16 there are zeros between the letters.
            if path in named or b"torch" in written.replace(b"\0", b""):
                outcomes[path] = problem
            continue
        notebook: Notebook | None = None
        if is_notebook(path):
            if b"torch" not in data:
                continue
            try:
                notebook = read_notebook(data)
            except NotPython as error:
                skipped.append(Skipped(path, str(error)))
                continue
            data = notebook.text.encode()
        if b"tclint:" in data.lower():
            marked[path] = data.decode("utf-8-sig", "replace")
            digests[path] = hashlib.sha256(written).digest()
        concerned = tuple(rule for rule in applicable(rules, data) if applies(rule))
        if concerned:
            texts[path] = _Text(path, written, written if notebook is None else data, notebook, concerned)
        elif notebook is None and (path in named or b"torch" in data) and len(data) <= MAX_SOURCE_BYTES:
            tables_cache = open_cache()
            broken = (tables_cache.what_is_broken if tables_cache is not None else what_is_broken)(written)
            if broken is not None:
                outcomes[path] = broken
    if texts:
        tables_cache = open_cache()
        outcomes.update(_lint_programs(texts, settings, finish, tables_cache, contents))
    notebooks = {path: text.notebook for path, text in texts.items() if text.notebook is not None}
    parsed_files = 0
    for path in files:
        outcome = outcomes.get(path)
        notebook = notebooks.get(path)
        if notebook is not None and isinstance(outcome, NotPython):
            outcome = Skipped(path, f"a cell is not Python: {outcome}")
        if isinstance(outcome, Skipped):
            skipped.append(outcome)
        elif isinstance(outcome, NotPython):
            unreadable.append(path)
            findings.append(_unreadable(path, outcome))
        elif outcome is not None:
            parsed_files += 1
            if outcome:
                digests[path] = hashlib.sha256(texts[path].written).digest()
            if notebook is not None:
                outcome = [with_edits_of_file(finding, notebook) for finding in outcome]
            findings.extend(outcome)
    notebooks = {
        path: notebook
        for path, notebook in notebooks.items()
        if path in marked or any(finding.location.path == path for finding in findings)
    }
    if tables_cache is not None:
        tables_cache.limit()
    unread = {*unreadable, *(item.path for item in skipped)}
    paths_read = tuple(path for path in files if path not in unread)
    return SourceResult(findings, skipped, len(files), parsed_files, paths_read, marked, digests, notebooks)


def with_edits_of_file(finding: Finding, notebook: Notebook) -> Finding:
    """Edits of a notebook's program become edits of the file; without edits where that is not possible."""
    if finding.fix is None or not finding.fix.edits:
        return finding
    from tclint.edits.texts import apply_edits, edits_between

    text, made = apply_edits(notebook.text, [finding.fix.edits])
    raw = notebook.rewritten(text) if made else None
    edits = edits_between(finding.location.path, notebook.raw, raw) if raw is not None else ()
    return replace(finding, fix=replace(finding.fix, edits=edits))


def _unreadable(path: str, problem: NotPython) -> Finding:
    return Finding(
        code=UNREADABLE_CODE,
        name=UNREADABLE_NAME,
        level="error",
        confidence="high",
        message=f"Python cannot read this file, and no rule looked at it: {problem}.",
        location=Location(path, problem.line, problem.column),
        effect=Effect(unknown="the file cannot be read"),
        identity=UNREADABLE_NAME,
    )


def _cache_of(settings: Settings) -> TablesCache | None:
    from tclint.source.syntax.cache import TablesCache

    return TablesCache.of(settings)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@dataclass(frozen=True, slots=True)
class _Text:
    """A file that rules concern."""

    path: str
    written: bytes
    """As it stands on the disk."""
    data: bytes
    """Its program: of a notebook the code of its cells."""
    notebook: Notebook | None
    rules: tuple[SourceRule, ...]


def _lint_programs(
    texts: Mapping[str, _Text],
    settings: Settings,
    finish: Finish | None,
    cache: TablesCache | None,
    contents: Mapping[str, bytes],
) -> dict[str, list[Finding] | Skipped | NotPython]:
    """What is found in files, each as part of the program that it belongs to."""
    from tclint.source.names.neighbours import Neighbours

    outcomes: dict[str, list[Finding] | Skipped | NotPython] = {}
    programs: dict[str, list[_Text]] = {}
    for path, text in texts.items():
        root = path if text.notebook is not None else Neighbours(path).root()
        programs.setdefault(root, []).append(text)
    parse_text = lru_cache(_KEPT_FILES)(_parser(cache))
    for root, several in programs.items():
        outcomes.update(_lint_program(root, several, settings, finish, parse_text, contents))
    return outcomes


def _lint_program(
    root: str,
    texts: Sequence[_Text],
    settings: Settings,
    finish: Finish | None,
    parse_text: Callable[[str], Parsed],
    contents: Mapping[str, bytes],
) -> dict[str, list[Finding] | Skipped | NotPython]:
    """What is found in some files of the program that starts in `root`."""
    from tclint.source.run.project import ProjectFiles

    outcomes: dict[str, list[Finding] | Skipped | NotPython] = {}

    def parse(path: str, data: bytes) -> Parsed | None:
        if len(data) > MAX_SOURCE_BYTES:
            outcomes[path] = Skipped(
                path, f"it is larger than {MAX_SOURCE_BYTES // 1000} kB; such files are not parsed"
            )
            return None
        try:
            return parse_text(decode(data))
        except NotPython as error:
            outcomes[path] = error if error.line else Skipped(path, str(error))
        except Exception as error:
            # One strange file must not end the run; the user sees which one it was.
            outcomes[path] = _failed(path, error)
        return None

    with _for_deep_code():
        given = {**contents, **{text.path: text.data for text in texts}}
        files = ProjectFiles(parse, given)
        linted = [file for text in texts for file in [files.file(text.path)] if file is not None]
        concerned = {file.path: text for file in linted for text in texts if text.path == file.path}
        found: dict[str, list[Finding]] = {path: [] for path in concerned}
        if linted:
            start = files.file(root) or linted[0]
            try:
                for finding in _findings(start, files, linted, concerned, settings):
                    if finding.location.path in found:
                        found[finding.location.path].append(finding)
            except Exception as error:
                return {path: _failed(path, error) for path in concerned} | outcomes
    for path, text in concerned.items():
        findings = sorted(found[path], key=_position)
        if is_test_path(path):
            findings = [_in_test(finding) for finding in findings]
        if finish is not None and findings:
            findings = finish(path, decode(text.data), findings)
        outcomes[path] = findings
    return {path: outcome for path, outcome in outcomes.items() if path in concerned or path in given}


def _findings(
    start: File,
    files: ProjectFiles,
    linted: Sequence[File],
    concerned: Mapping[str, _Text],
    settings: Settings,
) -> Iterator[Finding]:
    """What the rules find in a program."""
    from tclint.source.context import SourceContext
    from tclint.source.run.program import Program

    program = Program.of(start, files, linted)
    context = SourceContext.of_program(program, start, settings)
    rules = dict.fromkeys(rule for text in concerned.values() for rule in text.rules)
    for rule in rules:
        if rule.asks_record:
            yield from apply_rule(rule, context, Location(start.path, 1))
    for file in linted:
        inner = SourceContext.of_program(program, file, settings)
        for rule in concerned[file.path].rules:
            if not rule.asks_record:
                found = apply_rule(rule, inner, Location(file.path, 1))
                yield from (finding for finding in found if finding.location.path == file.path)


def _parser(cache: TablesCache | None) -> Callable[[str], Parsed]:
    from tclint.source.syntax.parse import parse

    return cache.parse if cache is not None else parse


def _failed(path: str, error: Exception) -> Skipped:
    return Skipped(path, f"tclint failed on it with {type(error).__name__}: {error}; please report this")


def lint_text(
    text: str,
    rules: Sequence[SourceRule],
    settings: Settings,
    path: str = "<text>",
    cache: TablesCache | None = None,
) -> list[Finding]:
    """Findings of one program given as text.

    Args:
        cache: where its tables may be kept; None: nowhere.

    Raises:
        NotPython: it cannot be parsed.
    """
    from tclint.source.context import SourceContext

    with _for_deep_code():
        context = SourceContext.of(path, _parser(cache)(text), settings)
        found = [finding for rule in rules for finding in apply_rule(rule, context, Location(path, 1))]
    if is_test_path(path):
        found = [_in_test(finding) for finding in found]
    return sorted(found, key=_position)


@contextlib.contextmanager
def _for_deep_code() -> Iterator[None]:
    """Python's limits as large programs need them."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    try:
        with _without_garbage_collection():
            yield
    finally:
        sys.setrecursionlimit(limit)


def _in_test(finding: Finding) -> Finding:
    """Tests of a library do with scalers and autocast what training must not: worth knowing, no more."""
    return replace(finding, level="info") if finding.code.startswith("AMP") else finding


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Trees grow, and hardly any of it is garbage: the collector's walks take a fifth of the time (timm)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _position(finding: Finding) -> tuple[int, int, str]:
    return finding.location.line, finding.location.column, finding.code
