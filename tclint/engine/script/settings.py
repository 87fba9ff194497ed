"""What a training script given beside a model says about how the model runs.

`tclint model.py:build_model train.py` prices the step that train.py runs: its autocast dtype and TF32
switches, torch.compile, channels_last, the DataLoader's batch and the optimizer, whether it says so to torch
or to a framework. Flags and configuration win over the script. An option (`args.batch_size`, a field of a
configuration class) counts with its default, and is called one; what cannot be decided without running the
script is left as it was set.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tclint.config.settings import Settings
from tclint.engine.script.frameworks import MARKERS, framework_settings
from tclint.engine.script.loop import batch, optimizer
from tclint.engine.script.precision import precision_of_autocast, precision_without_autocast, tf32_switches
from tclint.engine.script.reading import (
    Evidence,
    argument_of,
    calls,
    certain,
    consensus,
    options_above,
    runs_always,
    stated_at,
)
from tclint.graph.ops.graph import Assumption
from tclint.graph.ops.spec import Site
from tclint.source.context import SourceContext
from tclint.source.names.resolve import Symbol
from tclint.source.syntax.discovery import discover
from tclint.source.syntax.parse import NotPython, decode, parse
from tclint.source.syntax.prefilter import MAX_SOURCE_BYTES
from tclint.source.syntax.tables import dotted, method_of

MOST_SCRIPTS = 20
"""More files with a training loop than this are a library of examples, none of which is the model's."""


def join(
    paths: Sequence[str], targets: Sequence[str], settings: Settings
) -> tuple[Settings, tuple[Assumption, ...]]:
    """The settings with what the scripts say, and one assumption for each thing taken from them.

    Args:
        paths: existing files and folders of the source pass.
        targets: the models; their own files may hold the autocast region, so that its absence elsewhere
            means nothing.
        settings: what the user set; `settings.explicit` names what no script overrides.
    """
    scripts = [context for path in discover(paths, settings)[0] if (context := _script(path)) is not None]
    if len(scripts) > MOST_SCRIPTS:
        return settings, ()
    by_setting: dict[str, list[Evidence]] = {}
    for context in scripts:
        for stated in statements(context, autocast_elsewhere=_mentions_autocast(targets)):
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
    if missing := _missing(scripts, set(by_setting), settings):
        notes.append(missing)
    return replace(settings, **changes), tuple(notes)


_LOOKED_FOR = {
    "precision": "precision",
    "batch": "batch",
    "optimizer": "optimizer",
    "compiled": "torch.compile",
    "layout": "channels_last",
}
"""What is looked for in every script, and what the report calls it."""


def _missing(scripts: Sequence[SourceContext], found: set[str], settings: Settings) -> Assumption | None:
    """What no script says in a way that reading can decide."""
    if not scripts:
        return None
    missing = [
        words for name, words in _LOOKED_FOR.items() if name not in found and not _is_explicit(name, settings)
    ]
    names = ", ".join(os.path.basename(context.path) for context in scripts[:3])
    if not missing:
        return None
    return Assumption(f"not found by reading {names}: {', '.join(missing)}", Site(scripts[0].path, 1))


def statements(context: SourceContext, *, autocast_elsewhere: bool = False) -> Iterator[Evidence]:
    """What one script says with certainty, at most one statement for each setting."""
    told = _told_frameworks(context)
    if "precision" in told:
        autocast_elsewhere = True  # the framework's own
        if told["precision"].value == "tf32-cudnn":
            switches = tf32_switches(context)
            told["precision"] = replace(told["precision"], value=switches[0] if switches else None)
    yield from (stated for stated in told.values() if stated.value is not None)
    for find in (_compiled, _layout, batch, optimizer):
        found = find(context)
        if found is not None and found.setting not in told:
            yield found
    if "precision" in told:
        return
    autocast = precision_of_autocast(context)
    if (autocast is None and not autocast_elsewhere) or (autocast is not None and autocast.value is None):
        autocast = precision_without_autocast(context, autocast)
    if autocast is not None:
        yield autocast


_LABELS = {
    "compiled": "compiled:",
    "layout": "memory format",
    "find_unused_parameters": "gradients sent in order of registration:",
}
"""What a sentence calls a setting, where that is not the field's name."""


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _kept(name: str, settings: Settings) -> str:
    value = getattr(settings, name)
    return f"{_LABELS.get(name, name)} {'as the inputs have it' if value is None else _shown(value)}"


def _is_explicit(name: str, settings: Settings) -> bool:
    return name in settings.explicit or getattr(settings, name) != getattr(Settings(), name)


# --- finding scripts


def _script(path: str) -> SourceContext | None:
    """The file, if it has a training loop."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
        if len(data) > MAX_SOURCE_BYTES or not any(mark in data for mark in (b"backward(", *MARKERS)):
            return None
        return SourceContext.of(path, parse(decode(data)), Settings())
    except (OSError, NotPython):
        # The source pass reports what cannot be read; it is not this one's business to fail.
        return None


def _mentions_autocast(targets: Sequence[str]) -> bool:
    for target in targets:
        path = target.rsplit(":", 1)[0]
        if not os.path.isfile(path):
            return True  # a module by its import name: its file is not known here
        try:
            with open(path, "rb") as file:
                if b"autocast" in file.read():
                    return True
        except OSError:
            return True
    return False


# --- what is said


def _told_frameworks(context: SourceContext) -> dict[str, Evidence]:
    """By setting: what calls of frameworks say, where all of them agree."""
    found: dict[str, list[Evidence]] = {}
    for function, event in calls(context):
        for qualified in context.resolver.called(function, event.call):
            known = functools.partial(certain, context, function)
            for item in framework_settings(qualified, event.call, known):
                stated = stated_at(context, item.setting, item.value, event.call.node_id, item.words)
                found.setdefault(item.setting, []).append(stated)
    return {setting: same[0] for setting, same in found.items() if consensus(same) is not None}


def _compiled(context: SourceContext) -> Evidence | None:
    for function, event in calls(context):
        receiver, method = method_of(event.call)
        in_place = method == "compile" and receiver is not None and dotted(receiver) in context.casts.models
        if not in_place and "torch.compile" not in context.resolver.called(function, event.call):
            continue
        disabled = certain(context, function, argument_of(event.call, "disable"))
        if not disabled and runs_always(function, event.block, context):
            words = ("model.compile()" if in_place else "torch.compile") + options_above(
                context, function, event.block
            )
            return stated_at(context, "compiled", True, event.call.node_id, words)
    return None


_LAYOUTS = ("torch.channels_last", "torch.channels_last_3d")


def _layout(context: SourceContext) -> Evidence | None:
    """Weights or images in channels_last: torch then runs its convolutions in it."""
    for function, event in calls(context):
        if method_of(event.call)[1] not in ("to", "cuda", "contiguous"):
            continue
        value = certain(context, function, argument_of(event.call, "memory_format"))
        if not isinstance(value, Symbol) or value.qualified not in _LAYOUTS:
            continue
        if runs_always(function, event.block, context):
            words = value.qualified.rpartition(".")[2] + options_above(context, function, event.block)
            return stated_at(context, "layout", "channels_last", event.call.node_id, words)
    return None
