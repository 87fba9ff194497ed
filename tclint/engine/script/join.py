"""Gives every model of a run the settings of the scripts that build it.

`tclint model.py:build_model train.py` prices the step that train.py runs. Flags and configuration win over
the script; if scripts that build the same model disagree, the setting stays as it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tclint.config.settings import Settings
from tclint.core.text import listed
from tclint.engine.script.models import files_of_project, made_by_program, made_by_target, models_of
from tclint.engine.script.settings import Evidence, statements
from tclint.graph.ops import Assumption, Site
from tclint.source.project.scripts import Scripts
from tclint.source.run.program import Program
from tclint.source.run.project import ProjectFiles
from tclint.source.syntax.discovery import discover
from tclint.source.syntax.parse import NotPython, as_utf8
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES

_TRAINS = (b"backward(", b".fit(", b".train(", b"training_step", b"Trainer")
"""A script that trains contains one of these."""
MOST_SCRIPTS = 20
"""If more files than this have a training loop, they are a library of examples and not the model's
scripts."""


Joined: TypeAlias = tuple[Settings, tuple[Assumption, ...], frozenset[str]]
"""The settings of one model, an assumption for each setting that a script decides, and the files of which the
scripts that build the model run something."""


def join(paths: Sequence[str], targets: Sequence[str], settings: Settings) -> dict[str, Joined]:
    """Target -> its settings according to the scripts that build it.

    Args:
        paths: existing files and folders of the source pass.
        targets: the models; their own files may contain the autocast region, so that its absence elsewhere
            means nothing.
        settings: the user's settings; no script overrides those named in `settings.explicit`.
    """
    files = files_of_project(settings)
    starts = dict.fromkeys(_start(path) for path in discover(paths, settings)[0] if _trains(path))
    scripts = [one for path in starts if (one := _script(path, files)) is not None]
    if not scripts or len(scripts) > MOST_SCRIPTS:
        return dict.fromkeys(targets, (settings, (), frozenset()))
    own, unclear = _scripts_of(scripts, targets, files, {_start(path) for path in paths})
    evidence = {
        script.file.path: list(statements(script))
        for script in scripts
        if any(script in found for found in own.values())
    }
    joined = {}
    for target in targets:
        found = [one for script in own[target] for one in evidence[script.file.path]]
        settled, notes = settle(found, settings)
        missing = _missing(own[target], {one.setting for one in found}, settings)
        said_of_all = (*notes, *([missing] if missing else []), *unclear[target])
        ran = {script.file.path for script in own[target]}
        ran |= {event.place.file.path for script in own[target] for event in script.record.events}
        joined[target] = settled, said_of_all, frozenset(ran)
    return joined


def _scripts_of(
    scripts: Sequence[Program], targets: Sequence[str], files: ProjectFiles, named: set[str]
) -> tuple[dict[str, list[Program]], dict[str, list[Assumption]]]:
    """Target -> the scripts that build it, and target -> assumptions about other scripts.

    A script that shows no model counts as building the target if the user named it beside a single one.
    """
    own: dict[str, list[Program]] = {target: [] for target in targets}
    notes: dict[str, list[Assumption]] = {target: [] for target in targets}
    wanted = {target: made_by_target(target, files) for target in targets}
    unclear = []
    for script in scripts:
        made, models = made_by_program(script), models_of(script)
        built = [target for target in targets if made & wanted[target]]
        path = script.file.path
        if not built and not models and len(targets) == 1 and path in named:
            built = list(targets)
        for target in built:
            own[target].append(script)
        if built:
            continue
        if not models:
            unclear.append(os.path.basename(path))
        elif path in named:
            name = os.path.basename(path)
            what = f"{name} builds {listed(models, 3)}, not this model, so its settings are not used"
            for target in targets:
                notes[target].append(Assumption(what, Site(path, 1)))
    if unclear:
        what = (
            f"the settings of {listed(unclear, 3)} are not used: it is not clear which model is trained there"
        )
        for target in targets:
            if not own[target]:
                notes[target].append(Assumption(what))
    return own, notes


def settle(evidence: Sequence[Evidence], settings: Settings) -> tuple[Settings, tuple[Assumption, ...]]:
    by_setting: dict[str, list[Evidence]] = {}
    for stated in evidence:
        by_setting.setdefault(stated.setting, []).append(stated)
    changes: dict[str, Any] = {}
    notes: list[Assumption] = []
    for name, same in by_setting.items():
        first = same[0]
        node_id = Site(first.path, first.line)
        if len({stated.value for stated in same}) > 1:
            words = " and ".join(dict.fromkeys(stated.words for stated in same))
            notes.append(Assumption(f"{_kept(name, settings)}: the scripts say {words}", node_id))
        elif _is_explicit(name, settings):
            if getattr(settings, name) != first.value:
                notes.append(
                    Assumption(f"{_kept(name, settings)} as set; the script says {first.words}", node_id)
                )
        else:
            changes[name] = first.value
            notes.append(
                Assumption(f"{_LABELS.get(name, name)} {_shown(first.value)}: {first.words}", node_id)
            )
    return replace(settings, **changes), tuple(notes)


_LOOKED_FOR = {
    "precision": "precision",
    "batch": "batch",
    "optimizer": "optimizer",
    "compiled": "torch.compile",
    "layout": "channels_last",
}
"""Setting to look for in every script -> its name in reports."""


def _missing(scripts: Sequence[Program], found: set[str], settings: Settings) -> Assumption | None:
    """An assumption that names the settings which no script states in a decidable way; None if there are
    none."""
    if not scripts:
        return None
    missing = [
        words for name, words in _LOOKED_FOR.items() if name not in found and not _is_explicit(name, settings)
    ]
    names = ", ".join(os.path.basename(script.file.path) for script in scripts[:3])
    if not missing:
        return None
    return Assumption(f"not found by reading {names}: {', '.join(missing)}", Site(scripts[0].file.path, 1))


_LABELS = {"compiled": "compiled:", "layout": "memory format", "gpu_count": "GPUs:"}
"""Setting -> its name in sentences, if that is not the field's name."""


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _kept(name: str, settings: Settings) -> str:
    value = getattr(settings, name)
    return f"{_LABELS.get(name, name)} {'as the inputs have it' if value is None else _shown(value)}"


def _is_explicit(name: str, settings: Settings) -> bool:
    return name in settings.explicit or getattr(settings, name) != getattr(Settings(), name)


def _trains(path: str) -> bool:
    """Whether a file contains code that trains."""
    try:
        with open(path, "rb") as opened:
            data = opened.read(MAX_SOURCE_BYTES + 1)
        return len(data) <= MAX_SOURCE_BYTES and any(mark in as_utf8(data) for mark in _TRAINS)
    except (OSError, NotPython):
        # The source pass reports unreadable files.
        return False


def _start(path: str) -> str:
    """The script that starts a file's program."""
    path = os.path.abspath(path)
    return Scripts.around(path).of(path)


def _script(path: str, files: ProjectFiles) -> Program | None:
    """A script as a program, if it trains."""
    file = files.file(path)
    if file is None:
        return None
    program = Program.of(file, files)
    return program if program.record.of("backward") else None
