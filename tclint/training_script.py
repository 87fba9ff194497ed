"""What a training script given beside a model says about how the model runs.

`tclint model.py:build_model train.py` prices the step that train.py runs: its autocast dtype and TF32
switches, torch.compile, channels_last, the DataLoader's batch and the optimizer. Flags and configuration
win over the script. What cannot be decided without running it (options, branches) is left as it was set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tclint.config import OPTIMIZERS, Precision, Settings
from tclint.graph.graph import Assumption
from tclint.graph.spec import Site
from tclint.source.context import SourceContext
from tclint.source.discovery import discover
from tclint.source.frameworks import names
from tclint.source.parse import NotPython, decode, parse
from tclint.source.prefilter import MAX_SOURCE_BYTES
from tclint.source.resolve import Symbol
from tclint.source.tables import Assignment, Call, CallEvent, Expression, Function, dotted, method_of

MOST_SCRIPTS = 20
"""More files with a training loop than this are a library of examples, none of which is the model's."""


@dataclass(frozen=True, slots=True)
class Stated:
    """One thing that a script says."""

    setting: str
    """A field of Settings."""
    value: Any
    path: str
    line: int
    words: str
    """What is written there: 'autocast in bfloat16'."""


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
    by_setting: dict[str, list[Stated]] = {}
    for context in scripts:
        for stated in statements(context, autocast_elsewhere=_mentions_autocast(targets)):
            by_setting.setdefault(stated.setting, []).append(stated)
    changes: dict[str, Any] = {}
    notes: list[Assumption] = []
    for name, said in by_setting.items():
        first = said[0]
        site = Site(first.path, first.line)
        if len({stated.value for stated in said}) > 1:
            words = " and ".join(dict.fromkeys(stated.words for stated in said))
            notes.append(Assumption(f"{_kept(name, settings)}: the scripts say {words}", site))
        elif _is_explicit(name, settings):
            if getattr(settings, name) != first.value:
                notes.append(
                    Assumption(f"{_kept(name, settings)} as set; the script says {first.words}", site)
                )
        else:
            changes[name] = first.value
            notes.append(Assumption(f"{_LABELS[name]} {_shown(first.value)}: {first.words}", site))
    return replace(settings, **changes), tuple(notes)


def statements(context: SourceContext, *, autocast_elsewhere: bool = False) -> Iterator[Stated]:
    """What one script says with certainty, at most one statement for each setting."""
    for find in (_precision_of_autocast, _compiled, _layout, _batch, _optimizer):
        found = find(context)
        if found is not None:
            yield found
    if not autocast_elsewhere and _precision_of_autocast(context) is None:
        found = _precision_without_autocast(context)
        if found is not None:
            yield found


_LABELS = {
    "precision": "precision",
    "compiled": "compiled:",
    "layout": "memory format",
    "batch": "batch",
    "optimizer": "optimizer",
}


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _kept(name: str, settings: Settings) -> str:
    value = getattr(settings, name)
    return f"{_LABELS[name]} {'as the inputs have it' if value is None else _shown(value)}"


def _is_explicit(name: str, settings: Settings) -> bool:
    return name in settings.explicit or getattr(settings, name) != getattr(Settings(), name)


# --- finding scripts


def _script(path: str) -> SourceContext | None:
    """The file, if it has a training loop."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
        if b"backward(" not in data or len(data) > MAX_SOURCE_BYTES:
            return None
        return SourceContext.of(path, parse(decode(data)), Settings())
    except (OSError, NotPython):
        # The source pass reports what cannot be read; it is not this one's business to fail.
        return None


def _mentions_autocast(targets: Sequence[str]) -> bool:
    for target in targets:
        try:
            with open(target.rsplit(":", 1)[0], "rb") as file:
                if b"autocast" in file.read():
                    return True
        except OSError:
            return True  # a module by its import name: its file is not known here
    return False


# --- what is said


def _stated(context: SourceContext, setting: str, value: object, site: int, words: str) -> Stated:
    return Stated(setting, value, context.path, context.location(site).line, words)


def _agreed(found: list[Stated]) -> Stated | None:
    """The first of statements that agree; None where they do not, or there are none."""
    return found[0] if len({stated.value for stated in found}) == 1 else None


def _calls(context: SourceContext) -> Iterator[tuple[Function, CallEvent]]:
    for function in context.tables.functions:
        for event in function.events:
            if isinstance(event, CallEvent):
                yield function, event


def _runs_always(function: Function, block: int, context: SourceContext) -> bool:
    """No branch decides at run time whether the block runs; `if compile:` of a constant is no branch."""
    for index in function.enclosing(block):
        enclosing = function.blocks[index]
        if enclosing.kind in ("except", "case", "try_else", "loop_else"):
            return False
        if enclosing.kind in ("if", "else") and enclosing.condition is not None:
            if dotted(enclosing.condition) == "__name__" or "__name__" in repr(enclosing.condition):
                continue
            tested = context.resolver.evaluate(function, enclosing.condition)
            if not tested.certain or bool(tested.values[0]) != (enclosing.kind == "if"):
                return False
    return True


def _argument(call: Call, keyword: str, position: int | None = None) -> Expression | None:
    for index, argument in enumerate(call.arguments):
        if argument.keyword == keyword or (position == index and not argument.keyword and not argument.star):
            return argument.value
    return None


def _certain(context: SourceContext, function: Function, expression: Expression | None) -> object:
    if expression is None:
        return None
    value = context.resolver.evaluate(function, expression)
    return value.values[0] if value.certain else None


_PRECISIONS: dict[str, Precision] = {"float16": "fp16", "bfloat16": "bf16"}


def _precision_of_autocast(context: SourceContext) -> Stated | None:
    found = []
    for function in context.tables.functions:
        for region in context.amp.autocasts.regions(function):
            autocast = region.autocast
            on_gpu = autocast.devices is None or "cuda" in autocast.devices
            if (
                autocast.enabled is False
                or not on_gpu
                or not context.amp.gradients_on(function, region.block)
            ):
                continue
            precision = _PRECISIONS.get(autocast.dtype or "")
            words = f"autocast in {autocast.dtype or 'a dtype known at run time only'}"
            found.append(_stated(context, "precision", precision, region.site, words))
    agreed = _agreed(found)
    return agreed if agreed is not None and agreed.value is not None else None


_MATMUL_PRECISIONS = {"highest": "fp32", "high": "tf32", "medium": "tf32"}
_TF32_SWITCHES = ("torch.backends.cuda.matmul.allow_tf32",)
_OTHER_PRECISIONS = (
    "half",
    "bfloat16",
    "float16",
    "autocast",
    "fp16",
    "bf16",
    "deepspeed",
    "mixed_precision",
)


def _precision_without_autocast(context: SourceContext) -> Stated | None:
    """fp32, or TF32 where it is switched on; only where the file trains by itself, in no other precision."""
    tables = context.tables
    imports = (item.qualified for function in tables.functions for item in function.imports)
    if any(names().framework_of(qualified) for qualified in imports):
        return None
    if any(word in identifier.lower() for identifier in tables.identifiers for word in _OTHER_PRECISIONS):
        return None
    backward = next((e for _, e in _calls(context) if method_of(e.call)[1] == "backward"), None)
    if backward is None:
        return None
    for function, event in _calls(context):
        if "torch.set_float32_matmul_precision" in context.resolver.called(function, event.call):
            said = _certain(context, function, _argument(event.call, "precision", 0))
            if said in _MATMUL_PRECISIONS and _runs_always(function, event.block, context):
                words = f"no autocast, and float32 matrix products in {said!r} precision"
                return _stated(context, "precision", _MATMUL_PRECISIONS[str(said)], event.call.site, words)
            return None
    for function, assignment in _assignments(context):
        symbols = {name for t in assignment.targets for name in context.resolver.qualified(function, t)}
        if symbols & set(_TF32_SWITCHES):
            on = _certain(context, function, assignment.value)
            words = "no autocast, and TF32 switched " + ("on" if on else "off")
            return _stated(context, "precision", "tf32" if on else "fp32", assignment.site, words)
    words = "a backward pass, and no autocast or TF32 switch in this script"
    return _stated(context, "precision", "fp32", backward.call.site, words)


def _assignments(context: SourceContext) -> Iterator[tuple[Function, Assignment]]:
    for function in context.tables.functions:
        for event in function.events:
            if isinstance(event, Assignment):
                yield function, event


def _compiled(context: SourceContext) -> Stated | None:
    for function, event in _calls(context):
        if "torch.compile" not in context.resolver.called(function, event.call):
            continue
        disabled = _certain(context, function, _argument(event.call, "disable"))
        if not disabled and _runs_always(function, event.block, context):
            return _stated(context, "compiled", True, event.call.site, "torch.compile")
    return None


_LAYOUTS = ("torch.channels_last", "torch.channels_last_3d")


def _layout(context: SourceContext) -> Stated | None:
    """Weights or images in channels_last: torch then runs its convolutions in it."""
    for function, event in _calls(context):
        if method_of(event.call)[1] not in ("to", "cuda", "contiguous"):
            continue
        value = _certain(context, function, _argument(event.call, "memory_format"))
        if not isinstance(value, Symbol) or value.qualified not in _LAYOUTS:
            continue
        if _runs_always(function, event.block, context):
            words = value.qualified.rpartition(".")[2]
            return _stated(context, "layout", "channels_last", event.call.site, words)
    return None


_NOT_TRAINING = ("val", "test", "eval", "valid")


def _batch(context: SourceContext) -> Stated | None:
    """The batch of the loaders that training uses: those that shuffle, else those not named after tests."""
    shuffling, others = [], []
    for function, event in _calls(context):
        called = context.resolver.called(function, event.call)
        if not any(name.endswith(".DataLoader") and name.startswith("torch.") for name in called):
            continue
        size = _certain(context, function, _argument(event.call, "batch_size", 1))
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            return None
        stated = _stated(context, "batch", size, event.call.site, f"DataLoader with batch_size={size}")
        shuffle = _argument(event.call, "shuffle", 2)
        if shuffle is not None and _certain(context, function, shuffle) is not False:
            shuffling.append(stated)
        elif not any(word in name for name in _target(function, event) for word in _NOT_TRAINING):
            others.append(stated)
    return _agreed(shuffling or others)


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


def _optimizer(context: SourceContext) -> Stated | None:
    found = []
    for function, event in _calls(context):
        called = context.resolver.called(function, event.call)
        base: str | None = next((_OPTIMIZER_NAMES[name] for name in called if name in _OPTIMIZER_NAMES), None)
        if base is None:
            continue
        if any(argument.star for argument in event.call.arguments):
            return None
        # momentum is SGD's third parameter.
        momentum = _certain(context, function, _argument(event.call, "momentum", 2))
        name = f"{base}-momentum" if base == "sgd" and momentum else base
        fused = _argument(event.call, "fused")
        if fused is not None and context.resolver.evaluate(function, fused).values != (False,):
            # `fused=on_gpu`: on a GPU, it is.
            name += "-fused"
        if name in OPTIMIZERS:
            words = f"torch.optim.{called[0].rpartition('.')[2]}" + (" (fused)" if "-fused" in name else "")
            words = called[0] if base == "adamw-8bit" else words
            found.append(_stated(context, "optimizer", name, event.call.site, words))
    return _agreed(found)
