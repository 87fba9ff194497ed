"""Lints source files: finds them, filters them by their bytes, parses the rest, runs the rules."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from tclint.config.settings import Settings
from tclint.core.finding import Effect, Finding, Location
from tclint.core.rule import UNREADABLE_CODE, UNREADABLE_NAME
from tclint.core.target import RECIPE_SUFFIXES, SCRIPT_SUFFIXES, is_recipe
from tclint.engine.sources.fix_cache import Finish, FixCache
from tclint.engine.sources.program import SourceText, Watch, lint_programs
from tclint.engine.sources.recipes import lint_recipes
from tclint.source.project.launchers import passed_to
from tclint.source.project.scripts import Scripts
from tclint.source.project.versions import without_newer_edits
from tclint.source.run.own_tables import library_of
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.cache import TablesCache
from tclint.source.syntax.discovery import SUFFIXES, Skipped, discover
from tclint.source.syntax.notebooks import Notebook, is_notebook, read_notebook
from tclint.source.syntax.parse import NotPython, as_utf8, decode, what_is_broken
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES, applicable


@dataclass(frozen=True, slots=True)
class SourceResult:
    """The results of the source pass."""

    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    files: int = 0
    """The number of Python files examined, including those that concern no rule."""
    parsed: int = 0
    """The number of files whose tables were needed, parsed now or in an earlier run."""
    paths: tuple[str, ...] = ()
    """Absolute paths of the files that could be read."""
    marked: Mapping[str, str] = field(default_factory=dict)
    """Path -> text of the files that contain `tclint:`; only they can hold suppressions."""
    digests: Mapping[str, bytes] = field(default_factory=dict)
    """Path of a file with findings or `tclint:` -> SHA-256 of the file as it was read."""
    notebooks: Mapping[str, Notebook] = field(default_factory=dict)
    """The notebooks with findings; the findings' lines are those of the notebooks' programs."""
    errors: Sequence[tuple[str, str, str]] = ()
    """(path, sentence, traceback or '') of the named files that could not be linted."""
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Path of a script with findings -> targets of the models that its program trains."""
    too_new: Sequence[Finding] = ()
    """Findings that are not reported, since the project's releases lack what their fixes need."""


def lint(
    paths: Sequence[str],
    rules: Sequence[SourceRule],
    settings: Settings,
    *,
    contents: Mapping[str, bytes] | None = None,
    finish: Finish | None = None,
    watch: Watch | None = None,
) -> SourceResult:
    """Run source rules over files and folders, executing none of them.

    A file that Python cannot read is a finding; one that only tclint cannot read is an error if it was named
    and else listed in `skipped`. The run continues with the others. Files that concern no rule are still
    checked for syntax if they are named one by one or mention torch. Findings come in the order of the paths,
    files sorted within a folder, then by position.

    Args:
        contents: absolute path -> bytes of a file being edited, to use instead of those on the disk.
        finish: called with the path, text and findings of every file with findings.
        watch: called with each program that is run.

    Raises:
        TargetError: a path does not exist, or is neither a folder nor a Python file.
        UsageError: a table of the settings' `libraries` cannot be used.
    """
    contents = contents or {}
    found, skipped = discover(paths, settings, contents, (*SUFFIXES, *RECIPE_SUFFIXES), SCRIPT_SUFFIXES)
    files = [path for path in found if not is_recipe(path)]
    _, own = library_of(settings.libraries)
    named = {os.path.abspath(path) for path in paths}
    # A hook names all files of a commit, which does not mean that somebody asked for each of them.
    meant = frozenset[str]() if settings.force_exclude else frozenset(named)
    recipes = lint_recipes([path for path in found if is_recipe(path)], meant, rules, settings, contents)
    # A rule checks the settings only when a file could concern it, since some rules read data for that.
    applies = cache(lambda rule: rule.applies(settings))
    open_cache = cache(lambda: _cache_of(settings))
    tables_cache: TablesCache | None = None
    finished = FixCache.of(finish, rules, settings) if finish is not None else None
    findings: list[Finding] = []
    marked: dict[str, str] = {}
    digests: dict[str, bytes] = {}
    unreadable: list[str] = []
    texts: dict[str, SourceText] = {}
    outcomes: dict[str, list[Finding] | Skipped | NotPython] = {}
    parts: list[Skipped] = []
    models: Mapping[str, tuple[str, ...]] = {}
    too_new: list[Finding] = []
    for path in files:
        try:
            written = contents[path] if path in contents else _read(path)
        except OSError as error:
            outcomes[path] = Skipped(path, f"it cannot be read ({error.strerror or error})")
            continue
        program = _program_of(path, written, path in (meant if is_notebook(path) else named))
        if not isinstance(program, tuple):
            if program is not None:
                outcomes[path] = program
            continue
        data, notebook = program
        if b"tclint:" in data.lower():
            marked[path] = data.decode("utf-8-sig", "replace")
            digests[path] = hashlib.sha256(written).digest()
        uses_own = own.are_in(data)
        # What such a library does stands in its table, not in the file.
        is_named = path in named or notebook is not None or uses_own
        concerned = tuple(
            rule
            for rule in (rules if uses_own else applicable(rules, data + passed_to(path, data)))
            if applies(rule)
            and (is_named or not rule.program or Scripts.around(path).hold(path, rule.program))
        )
        texts[path] = SourceText(
            path, written, written if notebook is None else data, notebook, concerned, is_named
        )
        if (
            not concerned
            and notebook is None
            and (path in named or b"torch" in data)
            and len(data) <= MAX_SOURCE_BYTES
        ):
            tables_cache = open_cache()
            broken = (tables_cache.what_is_broken if tables_cache is not None else what_is_broken)(written)
            if broken is not None:
                outcomes[path] = broken
    if any(text.rules for text in texts.values()):
        tables_cache = open_cache()
        linted, too_new, parts, models = lint_programs(texts, settings, tables_cache, contents, watch)
        outcomes.update(linted)
    notebooks = {path: text.notebook for path, text in texts.items() if text.notebook is not None}
    errors: list[tuple[str, str, str]] = []
    parsed_files = 0
    for path in files:
        outcome = outcomes.get(path)
        notebook = notebooks.get(path)
        if notebook is not None and isinstance(outcome, NotPython):
            outcome = _in_cell(outcome, notebook)
            if path not in meant:  # many notebooks hold a cell that nobody runs any more
                outcome = Skipped(path, f"a cell is not Python: {outcome}")
        if isinstance(outcome, Skipped):
            if path in meant:
                errors.append((path, outcome.sentence, outcome.details))
            else:
                skipped.append(outcome)
        elif isinstance(outcome, NotPython):
            unreadable.append(path)
            findings.append(_unreadable(path, outcome))
        elif outcome is not None:
            parsed_files += 1
            if outcome:
                digests[path] = hashlib.sha256(texts[path].written).digest()
                if finished is not None:
                    outcome = [
                        without_newer_edits(finding)
                        for finding in finished(path, decode(texts[path].data), outcome)
                    ]
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
    if finished is not None:
        finished.limit()
    unread = {*unreadable, *(item.path for item in skipped), *(path for path, *_ in errors)}
    paths_read = tuple(path for path in files if path not in unread)
    return SourceResult(
        [*findings, *recipes.findings],
        [*skipped, *parts, *recipes.skipped],
        len(files) + len(recipes.paths),
        parsed_files,
        (*paths_read, *recipes.paths),
        {**marked, **recipes.marked},
        {**digests, **recipes.digests},
        notebooks,
        [*errors, *recipes.errors],
        {path: found for path, found in models.items() if path not in notebooks},
        too_new,
    )


def _program_of(
    path: str, written: bytes, is_named: bool
) -> tuple[bytes, Notebook | None] | Skipped | NotPython | None:
    """A file's program in UTF-8, with the notebook that it stands in; else what is to be said of the file."""
    try:
        data = as_utf8(written)
    except NotPython as problem:
        # The text is unknown, since it could not be decoded; UTF-16 has zeros between the letters.
        return problem if is_named or b"torch" in written.replace(b"\0", b"") else None
    if not is_notebook(path):
        return data, None
    if not is_named and b"torch" not in data:
        return None
    try:
        notebook = read_notebook(data)
    except NotPython as error:
        return Skipped(path, str(error))
    return notebook.text.encode(), notebook


def _in_cell(problem: NotPython, notebook: Notebook) -> NotPython:
    """A problem of a notebook's program, with the line of the cell in place of the program's in its text."""
    place = notebook.place(problem.line, problem.column)
    where = f"line {place.cell_line} of cell {place.cell}"
    return NotPython(str(problem).replace(f"line {problem.line}", where), problem.line, problem.column)


def with_edits_of_file(finding: Finding, notebook: Notebook) -> Finding:
    """A finding with the edits of a notebook's program turned into edits of the file, or without edits if
    that is impossible."""
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
    return TablesCache.of(settings)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
