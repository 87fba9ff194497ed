"""One program of a source pass: parses and runs its files, and lets the rules ask what it does."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from tclint.config.settings import Settings
from tclint.core.finding import Finding, Location, Related
from tclint.core.rule import CRASH_CODE, apply_rule
from tclint.core.text import listed
from tclint.core.units import plural
from tclint.engine.sources.program_cache import FileOutcome, ProgramCache, ProgramOutcome
from tclint.engine.suppressions import parse_suppressions
from tclint.source.context import SourceContext
from tclint.source.project.noted import noting
from tclint.source.project.scripts import Scripts, is_module
from tclint.source.project.test_paths import is_test_path
from tclint.source.project.versions import of_project
from tclint.source.questions.targets import trained_models
from tclint.source.recipes.reading import settings_of
from tclint.source.run.files import File
from tclint.source.run.own_tables import library_of
from tclint.source.run.program import Program
from tclint.source.run.project import ProjectFiles
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.cache import TablesCache
from tclint.source.syntax.discovery import Failed, Skipped
from tclint.source.syntax.notebooks import Notebook
from tclint.source.syntax.parse import NotPython, Parsed, decode, parse
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES

_KEPT_FILES = 512
"""The number of files whose tables are kept, since the programs of one project read the same files."""
_EVENTS_LEFT = 60_000
"""After finished programs with this many events together, some 250 MB of garbage are collected."""
_RECURSION_LIMIT = 6_000
"""Python's recursion limit: a sum of a thousand terms nests a thousand levels, at up to five frames each."""


@dataclass
class SourceProgram:
    """Files that run together, with the outcome for each."""

    context: SourceContext | None
    """None if none of its files could be read."""
    linted: dict[str, File] = field(default_factory=dict)
    """The linted files by path."""
    unreadable: dict[str, FileOutcome] = field(default_factory=dict)
    files: ProjectFiles = field(kw_only=True)
    """All files that it read."""
    has_failed: bool = False
    """Whether tclint itself failed on it."""

    @classmethod
    def of(
        cls,
        root: str,
        paths: Collection[str],
        settings: Settings,
        parse_text: Callable[[str], Parsed],
        contents: Mapping[str, bytes],
        tokens: tuple[str, ...],
        edited: Collection[str] = (),
        guests: Collection[str] = (),
    ) -> SourceProgram:
        """Run the program that starts in `root`, and the functions that matter to rules in the linted files.

        Args:
            paths: the linted files; those that the program does not read are not part of it.
            contents: path -> bytes to use instead of those on the disk.
            tokens: texts that rules look for.
            edited: the paths in `contents` whose bytes differ from those on the disk.
            guests: linted files of other programs, part of this one if it runs what matters in them.
        """
        unreadable: dict[str, FileOutcome] = {}

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
                unreadable[path] = Failed.of(path, error)
            return None

        files = ProjectFiles(parsed, contents, edited, settings_of)
        start = files.file(root)
        if start is None:
            return cls(None, {}, unreadable, files=files)
        tables, own = library_of(settings.libraries)
        try:
            program = Program.of(
                start,
                files,
                paths,
                (*tokens, *own.words),
                settings.program_events,
                is_module(root, start.lines()),
                tables,
                guests=guests,
            )
        except Exception as error:
            return cls(None, {}, {root: Failed.of(root, error)}, files=files, has_failed=True)
        linted = {file.path: file for file in program.files if file.path in program.within}
        return cls(SourceContext(program, settings), linted, unreadable, files=files)

    def findings(self, rules: Sequence[SourceRule]) -> Iterator[Finding]:
        """The findings of rules in the linted files."""
        if self.context is None:
            return
        for rule in rules:
            yield from apply_rule(rule, self.context, Location(self.context.path, 1))

    @property
    def cut(self) -> Skipped | None:
        """A note on the part that was not run because the budget was used up; None if there is none."""
        cut = self.context.record.cut if self.context is not None else {}
        if not cut or self.context is None:
            return None
        most = self.context.settings.program_events
        reason = (
            f"the calls of its program share {most} events ('program-events'), and none were left for "
            f"{listed([name for _, name in cut], 3)}"
        )
        return Skipped(self.context.path, reason, is_part=True)

    @property
    def models(self) -> tuple[str, ...]:
        """Targets of the models that it trains."""
        return trained_models(self.context.optimizers) if self.context is not None else ()

    def outcomes(
        self, rules: Sequence[SourceRule], texts: Mapping[str, SourceText]
    ) -> dict[str, FileOutcome]:
        """Path of each linted file -> its findings, each for itself, or the reason why it could not be read.
        Files with findings come first, in the order of their first ones."""
        found: dict[str, list[Finding]] = {}
        for finding in self.findings(rules):
            if finding.location.path in self.linted:
                found.setdefault(finding.location.path, []).append(finding)
        result: dict[str, FileOutcome] = {**found, **{path: [] for path in self.linted if path not in found}}
        result.update({path: self.unreadable[path] for path in texts if path in self.unreadable})
        return result


Watch: TypeAlias = Callable[[SourceProgram, Sequence[SourceRule]], None]
"""Called with a program and the rules that looked at it."""


def lint_programs(
    texts: Mapping[str, SourceText],
    settings: Settings,
    cache: TablesCache | None,
    contents: Mapping[str, bytes],
    watch: Watch | None = None,
) -> tuple[dict[str, FileOutcome], list[Finding], list[Skipped], dict[str, tuple[str, ...]]]:
    """The findings in files, each linted as part of its program; those whose fixes need newer releases than
    the project allows; notes on programs that were cut short; and the models that programs train, by script.

    Args:
        texts: all linted files by path; programs with files that concern rules are run.
        watch: called with each program that is run.
    """
    outcomes: dict[str, tuple[str, FileOutcome]] = {}
    """Path -> the script of the program that the file is part of, and its outcome there."""
    parts: dict[str, Skipped] = {}
    models: dict[str, tuple[str, ...]] = {}
    programs: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    """Path -> the scripts that may be tried besides."""
    for path, text in texts.items():
        root, *others[path] = scripts_of(path, text.notebook)
        programs.setdefault(root, []).append(path)
    guests: dict[str, list[str]] = {}
    """Script -> files of whose functions the programs run so far run none."""
    parse_text = lru_cache(_KEPT_FILES)(cache.parse if cache is not None else parse)
    given = {**contents, **{path: text.data for path, text in texts.items()}}
    # The best scripts are run first, so that those that are tried next have their guests by then.
    waiting = sorted(programs.items(), key=lambda item: -Scripts.around(item[0]).place_of(item[0]))
    kept = ProgramCache.of(settings, given)
    before = 0
    """The number of events of the previous program."""
    with for_deep_code() as collect:
        while waiting or guests:
            root, own = waiting.pop() if waiting else (next(iter(guests)), [])
            invited = guests.pop(root, [])
            paths = [*own, *invited]
            rules = tuple(dict.fromkeys(rule for path in paths for rule in _asked(texts[path], root)))
            if not rules:
                continue
            known = kept.load(root, own, rules, invited) if kept is not None else None
            if known is None:
                collect(before)
                with noting() as asked:
                    known, files, before = _run(
                        root,
                        rules,
                        {path: texts[path] for path in paths},
                        settings,
                        parse_text,
                        given,
                        contents,
                        invited,
                        watch,
                    )
                if kept is not None and files is not None and not _has_crashed(known.outcomes):
                    kept.store(root, own, rules, files, asked, known, invited)
            if known.cut is not None:
                parts[root] = known.cut
            if known.models:
                models[root] = known.models
            for path, outcome in known.outcomes.items():
                if path not in outcomes or path not in known.unreached:
                    outcomes[path] = root, outcome
            for path in paths:
                if path in known.outcomes and path not in known.unreached:
                    continue
                if others[path] and texts[path].rules:
                    guests.setdefault(others[path].pop(0), []).append(path)
                elif path != root and path not in outcomes:
                    # A file that no program reads is linted by itself.
                    waiting.append((path, [path]))
    if kept is not None:
        kept.limit()
    return *_reported(outcomes, texts), list(parts.values()), models


def _reported(
    outcomes: Mapping[str, tuple[str, FileOutcome]], texts: Mapping[str, SourceText]
) -> tuple[dict[str, FileOutcome], list[Finding]]:
    """The outcomes of files with the findings of each program as they are reported, and the findings that are
    not, since the project's releases lack what their fixes need.

    Args:
        outcomes: path -> the script of its program, and its outcome there.
    """
    result: dict[str, FileOutcome] = {}
    programs: dict[str, list[Finding]] = {}
    for path, (root, outcome) in outcomes.items():
        result[path] = [] if isinstance(outcome, list) else outcome
        programs.setdefault(root, []).extend(outcome if isinstance(outcome, list) else ())
    too_new = []
    for findings in programs.values():
        too_new += [finding for finding in findings if of_project(finding) is None]
        paths = {finding.location.path for finding in findings}
        for finding in reported(findings, {path: decode(texts[path].data) for path in paths}):
            outcome = result[finding.location.path]
            assert isinstance(outcome, list)
            outcome.append(finding)
    return result, too_new


def _run(
    root: str,
    rules: Sequence[SourceRule],
    texts: Mapping[str, SourceText],
    settings: Settings,
    parse_text: Callable[[str], Parsed],
    given: Mapping[str, bytes],
    edited: Collection[str],
    guests: Collection[str],
    watch: Watch | None,
) -> tuple[ProgramOutcome, ProjectFiles | None, int]:
    """Run one program. Returns its outcome; the files that it read (None if tclint failed on it); and the
    number of its events, which are garbage from then on."""
    tokens = tuple(dict.fromkeys(token for rule in rules for token in rule.triggers))
    own = frozenset(texts).difference(guests)
    program = SourceProgram.of(root, own, settings, parse_text, given, tokens, edited, guests)
    unreached = program.context.run.unreached if program.context is not None else frozenset[str]()
    outcomes = program.outcomes(rules, texts)
    if watch is not None:
        watch(program, rules)
    has_findings = any(isinstance(found, list) and found for found in outcomes.values())
    outcome = ProgramOutcome(outcomes, unreached, program.cut, program.models if has_findings else ())
    events = len(program.context.record.events) if program.context is not None else 0
    return outcome, None if program.has_failed else program.files, events


def _has_crashed(outcomes: Mapping[str, FileOutcome]) -> bool:
    """Whether tclint failed on a file or a rule crashed, so that findings are unknown."""
    if any(isinstance(outcome, Failed) for outcome in outcomes.values()):
        return True
    found = (outcome for outcome in outcomes.values() if isinstance(outcome, list))
    return any(finding.code == CRASH_CODE for findings in found for finding in findings)


def _asked(text: SourceText, root: str) -> Iterator[SourceRule]:
    """The rules that a file concerns when it is linted as part of a program."""
    for rule in text.rules:
        if (
            text.path != root
            or text.is_named
            or not rule.program
            or Scripts.around(root).of(root) == root
            or Scripts.around(root).hold(root, rule.program, alone=True)
        ):
            yield rule


def scripts_of(path: str, notebook: Notebook | None = None) -> tuple[str, ...]:
    """The files that may start the program which a file belongs to, best first."""
    return (path,) if notebook is not None else Scripts.around(path).leading_to(path)


def reported(findings: Sequence[Finding], texts: Mapping[str, str]) -> list[Finding]:
    """The findings of a program as reported: groups merged, sorted by position, and lowered to level info in
    tests.

    Args:
        texts: path -> text of the files that have findings.
    """
    directives = {path: parse_suppressions(text) for path, text in texts.items()}
    found = gathered(
        [known for finding in findings if (known := of_project(finding)) is not None],
        lambda finding: any(
            directive.matches(finding) for directive in directives.get(finding.location.path, ())
        ),
    )
    return [_in_test(finding) for finding in sorted(found, key=_position)]


def _in_test(finding: Finding) -> Finding:
    """A finding, at level info in a test: tests deliberately use scalers and autocast as training must
    not."""
    is_deliberate = finding.code.startswith("AMP") and is_test_path(finding.location.path)
    return replace(finding, level="info") if is_deliberate else finding


def _position(finding: Finding) -> tuple[int, int, str]:
    return finding.location.line, finding.location.column, finding.code


@contextlib.contextmanager
def for_deep_code() -> Iterator[Callable[[int], None]]:
    """Set Python's limits for large programs. Yields a function to call with the number of events of each
    finished program."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    # Trees grow and hardly any of it is garbage: the collector's walks took a fifth of the time (timm).
    was_enabled = gc.isenabled()
    gc.disable()
    left = 0

    def done(events: int) -> None:
        nonlocal left
        left += events
        if left > _EVENTS_LEFT:
            left = 0
            gc.collect()
            # Tables of files outlive programs and need not be walked each time.
            gc.freeze()

    try:
        yield done
    finally:
        if was_enabled:
            # Once enabled, the collector would walk all new objects; freezing exempts them.
            gc.freeze()
            gc.enable()
            gc.unfreeze()
        sys.setrecursionlimit(limit)


def lint_text(
    text: str,
    rules: Sequence[SourceRule],
    settings: Settings,
    path: str = "<text>",
    parse_text: Callable[[str], Parsed] = parse,
) -> list[Finding]:
    """The findings in one program given as text.

    Raises:
        NotPython: the text cannot be parsed.
    """
    with for_deep_code():
        parsed = parse_text(text)
        file = File(path, parsed.tables, lambda: parsed.spans, lambda: parsed.lines)
        files = ProjectFiles(lambda _, data: _parsed(data, parse_text))
        files.keep(path, file)
        tokens = tuple(token for rule in rules for token in rule.triggers)
        tables, own = library_of(settings.libraries)
        program = Program.of(
            file, files, tokens=(*tokens, *own.words), events=settings.program_events, tables=tables
        )
        context = SourceContext(program, settings)
        found = [finding for rule in rules for finding in apply_rule(rule, context, Location(path, 1))]
    return reported(found, {path: text})


def _parsed(data: bytes, parse_text: Callable[[str], Parsed]) -> Parsed | None:
    try:
        return parse_text(decode(data))
    except NotPython:
        return None


def gathered(findings: Iterable[Finding], is_silenced: Callable[[Finding], bool]) -> list[Finding]:
    """The findings with each group of a rule merged into its first finding, which names the other places."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    alone: list[Finding] = []
    for finding in findings:
        if finding.group and not is_silenced(finding):
            groups.setdefault((finding.code, finding.group), []).append(finding)
        else:
            alone.append(finding)
    return [*alone, *(_as_one(group) for group in groups.values())]


def _as_one(group: list[Finding]) -> Finding:
    paths = list(dict.fromkeys(finding.location.path for finding in group))
    first, *others = sorted(
        group, key=lambda it: (paths.index(it.location.path), it.location.line, it.location.column)
    )
    if not others:
        return first
    return replace(
        first,
        message=f"{first.message} The same goes for {plural(len(others), 'more place')}.",
        related=(
            *first.related,
            *(Related(other.location, "here as well", is_alike=True) for other in others),
        ),
        evidence={**first.evidence, "lines": sorted({finding.location.line for finding in group})},
        fix=first.fix and replace(first.fix, places=_joined(item.fix.places for item in group if item.fix)),
    )


def _joined(places: Iterable[Mapping[str, tuple[Location, ...]]]) -> dict[str, tuple[Location, ...]]:
    """The places of several findings by role."""
    found: dict[str, tuple[Location, ...]] = {}
    for own in places:
        found.update((role, (*found.get(role, ()), *more)) for role, more in own.items())
    return found


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file that is linted."""

    path: str
    written: bytes
    """The bytes on the disk."""
    data: bytes
    """The bytes of its program; for a notebook the code of its cells."""
    notebook: Notebook | None
    rules: tuple[SourceRule, ...]
    """The rules that it concerns."""
    is_named: bool
    """Whether the file itself was named, and not just its folder."""
