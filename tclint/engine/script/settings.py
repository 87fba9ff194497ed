"""What a training script given beside a model says about how the model runs.

`tclint model.py:build_model train.py` prices the step that train.py runs: its autocast dtype and TF32
switches, torch.compile, channels_last, the DataLoader's batch and the optimizer, whether it says so to torch
or to a framework. Flags and configuration win over the script. An option (`args.batch_size`, a field of a
configuration class) counts with its default, and is called one; what cannot be decided without running the
script is left as it was set.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace

from tclint.config.settings import OPTIMIZERS
from tclint.engine.script.frameworks import framework_settings
from tclint.engine.script.precision import precision_of_autocast, precision_without_autocast, tf32_switches
from tclint.engine.script.reading import (
    Evidence,
    argument_of,
    certain,
    consensus,
    given,
    options_above,
    runs_always,
    stated_at,
    unpacks_unknown,
    with_default,
)
from tclint.source.context import SourceContext
from tclint.source.names.resolve import Symbol
from tclint.source.syntax.tables import Assignment, CallEvent, Function, Name, dotted, method_of

_NOT_TRAINING = ("val", "test", "eval", "valid")


def batch(context: SourceContext) -> Evidence | None:
    """The batch of the loaders that training uses: those that shuffle, else those not named after tests."""
    shuffling, others, loaded = [], [], False
    for function, event in context.tables.calls:
        called = context.resolver.called(function, event.call)
        if not any(name.endswith(".DataLoader") and name.startswith("torch.") for name in called):
            continue
        loaded = True
        size, default = with_default(context, *given(context, function, event.call, "batch_size", 1))
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            return None
        words = f"DataLoader with batch_size={size}{default}"
        stated = stated_at(context, "batch", size, event.call.node_id, words)
        shuffle = argument_of(event.call, "shuffle", 2)
        if shuffle is not None and certain(context, function, shuffle) is not False:
            shuffling.append(stated)
        elif not any(word in name for name in _target(function, event) for word in _NOT_TRAINING):
            others.append(stated)
    return consensus(shuffling or others) if loaded else _constant_batch(context)


_CROSS_ENTROPY = frozenset(
    {
        "torch.nn.CrossEntropyLoss",
        "torch.nn.functional.cross_entropy",
        "torch.nn.modules.loss.CrossEntropyLoss",
    }
)
_LOSS = re.compile(r"torch\.nn\.(modules\.loss\.\w+Loss|\w+Loss|functional\.(\w+_loss|\w*cross_entropy\w*))")


def loss(context: SourceContext) -> Evidence | None:
    """Cross-entropy where a script computes it and no other loss of torch's."""
    found = []
    for function, event in context.tables.calls:
        for called in context.resolver.called(function, event.call):
            if _LOSS.fullmatch(called):
                value = "cross_entropy" if called in _CROSS_ENTROPY else called
                words = called.rpartition(".")[2]
                found.append(stated_at(context, "loss", value, event.call.node_id, words))
    stated = consensus(found)
    return stated if stated is not None and stated.value == "cross_entropy" else None


_BATCH_NAMES = re.compile(r"(device_|micro_|train_)?batch_size", re.IGNORECASE)


def _constant_batch(context: SourceContext) -> Evidence | None:
    """The constant `batch_size` of a script that loads its data by itself."""
    module = context.tables.functions[0]
    found = []
    for event in module.assignments:
        for target in event.targets:
            size, default = with_default(context, module, Name(target))
            if _BATCH_NAMES.fullmatch(target) and isinstance(size, int) and size > 0:
                words = f"{target} = {size}{default}"
                found.append(stated_at(context, "batch", size, event.node_id, words))
    return consensus(found)


def _target(function: Function, event: CallEvent) -> tuple[str, ...]:
    """The names that the call's value is assigned to."""
    for other in function.events:
        if isinstance(other, Assignment) and other.value == event.call:
            return tuple(target.lower() for target in other.targets)
    return ()


_OPTIMIZER_NAMES = {
    "torch.optim.AdamW": "adamw",
    "torch.optim.Adam": "adam",
    "torch.optim.SGD": "sgd",
    "torch.optim.RMSprop": "rmsprop",
    "torch.optim.Adagrad": "adagrad",
    "bitsandbytes.optim.AdamW8bit": "adamw-8bit",
}


def optimizer(context: SourceContext) -> Evidence | None:
    found = []
    for function, event in context.tables.calls:
        called = context.resolver.called(function, event.call)
        base: str | None = next((_OPTIMIZER_NAMES[name] for name in called if name in _OPTIMIZER_NAMES), None)
        if base is None:
            continue
        if unpacks_unknown(context, function, event.call):
            return None
        # momentum is SGD's third parameter.
        momentum, _ = with_default(context, *given(context, function, event.call, "momentum", 2))
        name = f"{base}-momentum" if base == "sgd" and momentum else base
        where, fused = given(context, function, event.call, "fused")
        if fused is not None and context.resolver.evaluate(where, fused).values != (False,):
            # `fused=on_gpu`: on a GPU, it is.
            name += "-fused"
        if name in OPTIMIZERS:
            words = f"torch.optim.{called[0].rpartition('.')[2]}" + (" (fused)" if "-fused" in name else "")
            words = called[0] if base == "adamw-8bit" else words
            if base == "rmsprop" and momentum:
                words += f" with momentum={momentum}, whose buffer is not counted"
            found.append(stated_at(context, "optimizer", name, event.call.node_id, words))
    return consensus(found)


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
