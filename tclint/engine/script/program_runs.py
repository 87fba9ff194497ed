"""Chooses the programs of a project that are run to learn how they make a model, and their words."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from tclint.config.settings import Settings
from tclint.source.project.launchers import launches_of
from tclint.source.project.scripts import TRAINS, Scripts, root_of
from tclint.source.project.test_paths import is_test_path
from tclint.tracing import run_programs

_MOST_SCRIPTS = 4
_MOST_RUNS, _MOST_FOR_INPUTS = 4, 2
"""The most runs: if the model cannot be made without arguments, and if only its inputs are guessed."""


def calls_by_running(
    target: str, files: Sequence[str], needed: Collection[str], settings: Settings
) -> list[dict[str, Any]]:
    """Run the project's programs; return their calls of a class or builder, with the files that they read.

    The first program that gives all needed arguments ends the search. No program can change files.

    Args:
        target: 'path/file.py:Net'.
        files: those that name it, best first.
        needed: the arguments that it cannot be made without.
    """
    programs = list(islice(_programs(target.rpartition(":")[0], files), _MOST_RUNS))
    if not needed:
        # Only the batches that the model is trained on tell more than a guess.
        programs = [program for program in programs if program["trains"]][:_MOST_FOR_INPUTS]
    found: list[dict[str, Any]] = []
    with closing(run_programs(target, programs, settings)) as shown:
        for program, one in zip(programs, shown, strict=False):
            calls = [{**program, **call, "files": one["files"]} for call in one["calls"]]
            complete = [call for call in calls if call["arguments"] and set(needed) <= set(call["arguments"])]
            if complete:
                return complete[:1]
            found += calls
    return found


def _programs(path: str, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The programs to run: script, words, and folder to run in (the project's, then the script's).

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
    for script in [*starts[: _MOST_SCRIPTS - len(own)], *own]:
        words = _words(script)
        for folder in dict.fromkeys([root_of(script), os.path.dirname(script)]):
            yield {"script": script, "words": words, "folder": folder, "trains": script in training}


def _words(script: str) -> list[str]:
    """The words of the first command that starts the script and whose words are all known."""
    launches = (*launches_of(script), *launches_of(script, on_pages=True))
    return next((words for one in launches if (words := one.words_to_pass) is not None), [])
