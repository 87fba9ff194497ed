"""What a training script given beside a model says about how the model runs.

`tclint model.py:build_model train.py` prices the step that train.py runs: its autocast dtype and TF32
switches, torch.compile, channels_last, the DataLoader's batch and the optimizer, whether it says so to torch
or to a framework. Flags and configuration win over the script. An option (`args.batch_size`, a field of a
configuration class) counts with its default, and is called one; what cannot be decided without running the
script is left as it was set.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from tclint.engine.script.frameworks import framework_settings
from tclint.engine.script.loop import batch, loss, optimizer
from tclint.engine.script.precision import precision_of_autocast, precision_without_autocast, tf32_switches
from tclint.engine.script.reading import (
    Evidence,
    argument_of,
    certain,
    consensus,
    options_above,
    runs_always,
    stated_at,
)
from tclint.source.context import SourceContext
from tclint.source.names.resolve import Symbol
from tclint.source.syntax.tables import dotted, method_of


def statements(context: SourceContext, *, autocast_elsewhere: bool = False) -> Iterator[Evidence]:
    """What one script says with certainty, at most one statement for each setting."""
    told = _told_frameworks(context)
    if "precision" in told:
        autocast_elsewhere = True  # the framework's own
        if told["precision"].value == "tf32-cudnn":
            switches = tf32_switches(context)
            told["precision"] = replace(told["precision"], value=switches[0] if switches else None)
    yield from (stated for stated in told.values() if stated.value is not None)
    for find in (_compiled, _layout, batch, optimizer, loss):
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


# --- what is said


def _told_frameworks(context: SourceContext) -> dict[str, Evidence]:
    """By setting: what calls of frameworks say, where all of them agree."""
    found: dict[str, list[Evidence]] = {}
    for function, event in context.tables.calls:
        for qualified in context.resolver.called(function, event.call):
            known = functools.partial(certain, context, function)
            for item in framework_settings(qualified, event.call, known):
                stated = stated_at(context, item.setting, item.value, event.call.node_id, item.words)
                found.setdefault(item.setting, []).append(stated)
    return {setting: same[0] for setting, same in found.items() if consensus(same) is not None}


def _compiled(context: SourceContext) -> Evidence | None:
    for function, event in context.tables.calls:
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
    for function, event in context.tables.calls:
        if method_of(event.call)[1] not in ("to", "cuda", "contiguous"):
            continue
        value = certain(context, function, argument_of(event.call, "memory_format"))
        if not isinstance(value, Symbol) or value.qualified not in _LAYOUTS:
            continue
        if runs_always(function, event.block, context):
            words = value.qualified.rpartition(".")[2] + options_above(context, function, event.block)
            return stated_at(context, "layout", "channels_last", event.call.node_id, words)
    return None
