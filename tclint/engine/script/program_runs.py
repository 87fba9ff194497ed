"""Runs programs of a project up to where they make a model, where reading does not tell its arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice

from tclint.config.settings import Settings
from tclint.engine.script.construction import Construction, programs_naming
from tclint.engine.script.models import file_of, files_of_project
from tclint.graph.ops import Site
from tclint.source.project.launchers import launches_of
from tclint.source.project.scripts import TRAINS, Scripts, root_of
from tclint.source.project.test_paths import is_test_path
from tclint.tracing import ProgramCall, ProgramRun, ProgramStart, run_programs
from tclint.tracing.values.sites import SiteFinder

_MOST_SCRIPTS = 4
_MOST_RUNS, _MOST_FOR_INPUTS = 4, 2
"""The most runs: if the model cannot be made without arguments, and if only its inputs are guessed."""


def is_certain(found: Sequence[Construction], where: str, needed: Collection[str]) -> bool:
    """Whether reading tells all of how a program makes the model. Tests and the model's own file do not
    count, since they may make a small one."""
    one = found[0] if found else None
    if one is None or not set(needed) <= set(one.arguments):
        return False
    if one.untold or one.trained_at or one.otherwise:
        return False
    own = os.path.realpath(where.rpartition(":")[0])
    return (one.is_trained or os.path.realpath(one.site.path) != own) and not one.is_of_test


def with_runs(
    where: str, needed: Collection[str], found: list[Construction], settings: Settings
) -> list[Construction]:
    """The calls of a training program that was run; if there are none, those that were read, together with
    those of other runs that tell more."""
    wanted = set(needed)
    runs = by_running(where, needed, settings, with_example=True)
    more = [
        one
        for one in runs
        if not (one.untold and any(set(one.arguments) <= set(read.arguments) for read in found))
    ]
    best = [one for one in more if one.is_trained and wanted <= set(one.arguments)]
    if best:  # alone: where that fails, a test's small model would stand for the trained one
        return best
    missing = next((one.missing for one in runs if one.missing), ())
    both = [replace(one, missing=missing) for one in [*found, *more]]
    return sorted(both, key=lambda one: -len(wanted & set(one.arguments)))


def by_running(
    where: str, needed: Collection[str], settings: Settings, *, with_example: bool = False
) -> list[Construction]:
    """The calls of a class or builder that the project's programs reach when they run.

    The first program that gives all needed arguments ends the search. No program can change files.

    Args:
        where: 'path/file.py:Net'.
        needed: the arguments that it cannot be made without.
        with_example: whether to run the example in its own file even if it needs none.
    """
    target, _, name = where.rpartition(":")
    file = file_of(target, files_of_project(settings)) if settings.run_programs else None
    if file is None or not SiteFinder().is_user_file(file.path):
        return []
    files = programs_naming(file.path, re.compile(rf"\b{re.escape(name)}\b"))
    starts = list(islice(_starts(file.path, files), _MOST_RUNS))
    if not needed:
        # Only the batches that the model is trained on tell more than a guess.
        examples = [one for one in starts if with_example and one[0].script == file.path][:1]
        starts = [*[one for one in starts if one[0].trains][:_MOST_FOR_INPUTS], *examples]
    found: list[Construction] = []
    with closing(run_programs(f"{file.path}:{name}", [start for start, _ in starts], settings)) as runs:
        for (start, chosen_from), run in zip(starts, runs, strict=False):
            calls = [_construction(call, start, run, chosen_from) for call in run.calls]
            complete = [one for one in calls if one.arguments and set(needed) <= set(one.arguments)]
            if complete:
                return complete[:1]
            found += calls
    return found


def _construction(call: ProgramCall, start: ProgramStart, run: ProgramRun, chosen_from: str) -> Construction:
    return Construction(
        call.arguments,
        call.sizes,
        Site(call.path, call.line),
        run.files,
        is_trained=start.trains,
        untold=call.untold,
        chosen_from=chosen_from,
        command=" ".join([os.path.relpath(start.script), *start.words]),
        missing=run.missing,
        inputs=call.inputs,
    )


def _starts(path: str, files: Sequence[str]) -> Iterator[tuple[ProgramStart, str]]:
    """The programs to run, each in the project's folder, then in the script's; and what each was chosen from.

    Training scripts come first: those that lead to the model's file, those that name it, and the project's
    best, which may find it by a name in their configuration. The example in the model's file comes last.
    """
    scripts = Scripts.around(path)
    training = scripts.lead_to(TRAINS)
    best = sorted(training, key=scripts.place_of)[:2]
    starts = [scripts.of(file) for file in (*scripts.leading_to(path), *files, *best)]
    starts = [file for file in dict.fromkeys(starts) if file != path and not is_test_path(file)]
    starts.sort(key=lambda file: file not in training)
    own = [path] if b"__name__" in scripts.files.get(path, b"") else []
    rivals = [script for script in starts if script in training and script in map(scripts.of, files)]
    for script in [*starts[: _MOST_SCRIPTS - len(own)], *own]:
        words, chosen_from = _words(script)
        others = [rival for rival in rivals if rival != script] if script in rivals else []
        if others and not chosen_from:
            chosen_from = f"programs (another is {os.path.relpath(others[0])})"
        for folder in dict.fromkeys([root_of(script), os.path.dirname(script)]):
            yield ProgramStart(script, words, folder, script in training), chosen_from


def _words(script: str) -> tuple[tuple[str, ...], str]:
    """The words of the first command that starts the script and whose words are all known; and the commands
    that it was chosen from, if others start it with different words."""
    launches = (*launches_of(script), *launches_of(script, on_pages=True))
    known = [(tuple(words), one.path) for one in launches if (words := one.words_to_pass) is not None]
    first, path = known[0] if known else ((), "")
    return first, f"commands ({os.path.relpath(path)})" if any(words != first for words, _ in known) else ""
