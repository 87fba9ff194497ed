"""Reads from the record of a training script how its model runs.

`tclint model.py:build_model train.py` prices the step that train.py runs: the dtype of the autocast around
its forward, TF32 switches, torch.compile, channels_last, the loader's batch, accumulation, the optimizer and
the loss, whether the script says so to torch or to a framework. Flags and configuration win over the script.
An option counts with its default, and the report says so; a setting that cannot be decided without running
the script keeps its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tclint.config.settings import OPTIMIZERS, Precision
from tclint.source.questions.defaults import Defaults
from tclint.source.run.program import Program
from tclint.source.run.values import NONE, Constant, Event, Symbol, Thing, Value


@dataclass(frozen=True, slots=True)
class Evidence:
    """One setting that a script states."""

    setting: str
    """A field of Settings."""
    value: Any
    path: str
    line: int
    words: str
    """The script's statement in words: 'autocast in bfloat16'."""


_PRECISIONS: dict[str, Precision] = {"torch.float16": "fp16", "torch.bfloat16": "bf16"}
_PURE: dict[str, Precision] = {
    "torch.float16": "pure-fp16",
    "torch.bfloat16": "pure-bf16",
    "torch.float64": "fp64",
}
_OPTIMIZERS = {
    "torch.optim.AdamW": "adamw",
    "torch.optim.Adam": "adam",
    "torch.optim.SGD": "sgd",
    "torch.optim.RMSprop": "rmsprop",
    "torch.optim.Adagrad": "adagrad",
    "bitsandbytes.optim.AdamW8bit": "adamw-8bit",
}
_LOSS = re.compile(r"torch\.nn\.(?:modules\.loss\.)?(?:functional\.)?(\w*(?:Loss|_loss|cross_entropy\w*))")
_CROSS_ENTROPY = frozenset({"CrossEntropyLoss", "cross_entropy"})
_SWITCHES = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32")
_MATMUL_PRECISIONS = {"highest": False, "high": True, "medium": True}
_FLOAT32: dict[tuple[bool, bool], Precision] = {
    (False, False): "fp32",
    (False, True): "tf32-cudnn",
    (True, False): "tf32-matmul",
    (True, True): "tf32",
}
"""(TF32 switch of matrix products, of cuDNN) -> precision of float32; torch's defaults are off and on."""


def statements(program: Program) -> Iterator[Evidence]:
    """The settings that a program states with certainty, at most one statement for each."""
    script = Script(program)
    if not script.backwards:
        return
    for find in (
        script.compiled,
        script.layout,
        script.batch,
        script.optimizer,
        script.loss,
        script.accumulation,
        script.precision,
    ):
        found = find()
        if found is not None:
            yield found


class Script:
    """Answers about the training step of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.record = program.record
        self.facts = program.facts
        self.backwards = [event for event in self.record.of("backward") if self._place(event) is not None]

    @cached_property
    def forwards(self) -> list[Event]:
        """The calls of modules, or of what may be modules, that lead to the losses."""
        found: dict[Event, None] = {}
        for backward in self.backwards:
            made = self.facts.made_by(self.facts.loss_of(backward))
            calls = [
                event for event in made if event.kind in ("forward", "call") and event.subject is not None
            ]
            found.update(dict.fromkeys(calls or [event for event in made if event.kind in ("op", "call")]))
        return list(found)

    @cached_property
    def models(self) -> frozenset[Thing]:
        return frozenset(thing for event in self.forwards for thing in self.facts.things(event.subject))

    def _place(self, event: Event) -> tuple[str, int] | None:
        """The line of an event; for an event inside a library, the line of the call that led to it."""
        for place in reversed(event.places):
            if not place.file.is_library:
                return place.file.path, place.file.spans()[place.node_id].line
        return None

    def _said(self, setting: str, value: object, event: Event, words: str) -> Evidence | None:
        place = self._place(event)
        return Evidence(setting, value, *place, words) if place is not None else None

    # -- settings

    def precision(self) -> Evidence | None:
        """The precision of the forward: that of autocast or of the weights, or float32 under its switches."""
        found: list[Evidence] = []
        for event in self.forwards:
            chosen, known = self._autocast_at(event)
            if not known:
                return None
            if chosen is not None:
                evidence = self._of_autocast(chosen, event)
                if evidence is None:
                    return None
                found.append(evidence)
            if chosen is None or found[-1].value is None:
                pure = self._of_weights(event)
                if pure is not None:
                    found.append(pure)
        on = _consensus([item for item in found if item.value is not None])
        if any(item.value is not None for item in found):
            return on
        return self._float32(found[0] if found else None)

    def _autocast_at(self, event: Event) -> tuple[Thing | None, bool]:
        """The autocast context around an event by default, and whether that is known."""
        for region in reversed(event.regions):
            context = Defaults().value(region.context)
            if context is None:
                # Only a run would show which context it is, or whether it is autocast at all.
                return None, False
            if not isinstance(context, Thing) or context.kind != "autocast":
                continue
            if "cuda" in (self.facts.devices_of_autocast(context) or {"cuda"}):
                return context, True
        return None, True

    def _of_autocast(self, context: Thing, event: Event) -> Evidence | None:
        defaults = Defaults()
        enabled = context.fields.get("enabled")
        on = True if enabled is None else defaults.truth(enabled)
        made = context.made or event
        if on is None:
            return None
        if not on:
            return self._said("precision", None, made, f"autocast is off{defaults.words}")
        dtype = context.fields.get("dtype")
        chosen = Symbol("torch.float16") if dtype in (None, Constant(None)) else defaults.value(dtype)
        name = chosen.name if isinstance(chosen, Symbol) else ""
        if name not in _PRECISIONS:
            return None
        words = f"autocast in {name.removeprefix('torch.')}{defaults.words}"
        return self._said("precision", _PRECISIONS[name], made, words)

    def _of_weights(self, event: Event) -> Evidence | None:
        dtype = Defaults().value(event.changed.get("@dtype"))
        name = dtype.name if isinstance(dtype, Symbol) else ""
        if name not in _PURE:
            return None
        return self._said("precision", _PURE[name], event, f"weights in {name.removeprefix('torch.')}")

    def _float32(self, off: Evidence | None) -> Evidence | None:
        """The precision of float32 under the TF32 switches; None if a switch is undecided."""
        switches: dict[str, bool] = {}
        last: Event | None = None
        words = "a backward pass, and no autocast or TF32 switch in this script"
        for event in self.record.events:
            switch, on = self._switched(event)
            if switch is None:
                continue
            if on is None or Defaults().follows(event.path) is None:
                return None
            if Defaults().follows(event.path):
                switches[switch], last = on, event
                words = f"no autocast, and {switch.removeprefix('torch.backends.')} = {on}"
        if any(self._is_quantized(thing) for thing in self.models):
            return None
        precision = _FLOAT32[switches.get(_SWITCHES[0], False), switches.get(_SWITCHES[1], True)]
        if off is not None:
            return Evidence("precision", precision, off.path, off.line, off.words)
        return self._said("precision", precision, last or self.backwards[0], words)

    def _switched(self, event: Event) -> tuple[str | None, bool | None]:
        """The TF32 switch that an event sets, and its value."""
        if event.kind == "set" and event.name in _SWITCHES:
            value = Defaults().constant(event.arguments["value"])
            return event.name, value if isinstance(value, bool) else None
        if event.name == "torch.set_float32_matmul_precision":
            level = Defaults().constant(event.first)
            return _SWITCHES[0], _MATMUL_PRECISIONS.get(str(level))
        return None, None

    def _is_quantized(self, thing: Thing) -> bool:
        return thing.fields.get("@quantized") is not None

    def batch(self) -> Evidence | None:
        """The batch size of the loaders whose batches reach a loss, else of tensors that the script makes."""
        found: list[Evidence | None] = []
        for event in self._leading("batch"):
            for loader in self.facts.kinds(event.subject, "loader"):
                defaults = Defaults()
                sampler = loader.fields.get("batch_sampler", NONE)
                if sampler == NONE:
                    maker = "DataLoader"
                    given = loader.fields.get("batch_size", None if "**" in loader.fields else Constant(1))
                else:
                    maker = "batch_sampler"
                    samplers = [*self.facts.things(sampler)]
                    given = samplers[0].fields.get("batch_size") if len(samplers) == 1 else None
                size = defaults.constant(given)
                if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                    return None
                words = f"{maker} with batch_size={size}{defaults.words}"
                found.append(self._said("batch", size, loader.made or event, words))
        return _consensus(found) if found else self._made_batch()

    def _leading(self, kind: str) -> Iterator[Event]:
        """Events of a kind that a loss comes from, or that share a loop with a backward pass."""
        loops = {round_.loop for backward in self.backwards for round_ in backward.loops}
        for event in self.record.of(kind):
            if event.loop in loops:
                yield event

    def _made_batch(self) -> Evidence | None:
        """The number of rows of the tensors that a script without a loader makes for a step."""
        found: list[Evidence | None] = []
        for forward in self.forwards:
            for value in forward.arguments.values():
                for event in self.facts.made_by(value):
                    if event.kind == "factory":
                        found += [self._rows(event, size) for size in event.arguments.values()]
        sized = [item for item in found if item is not None]
        return _consensus(sized) if sized else None

    def _rows(self, event: Event, size: Value) -> Evidence | None:
        shape = next(iter(self.facts.kinds(size, "tuple")), None)
        first = shape.fields.get(("item", 0)) if shape is not None else None
        defaults = Defaults()
        rows = defaults.constant(first)
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 2:
            return None
        return self._said("batch", rows, event, f"{event.name} of {rows} rows{defaults.words}")

    def optimizer(self) -> Evidence | None:
        """The optimizer that steps; if none is known to step, the one that the script makes."""
        stepped = {
            thing
            for event in self.record.of("step", "scaler_step")
            for value in (event.subject, event.arguments.get("optimizer"))
            for thing in self.facts.kinds(value, "optimizer")
            if thing.made is not None
        }
        made = [
            thing
            for event in self.record.of("make")
            for thing in self.facts.kinds(event.result, "optimizer")
            if thing in stepped or not stepped
        ]
        found = [self._of_optimizer(thing) for thing in made if thing.made is not None]
        return _consensus(found)

    def _of_optimizer(self, thing: Thing) -> Evidence | None:
        base = _OPTIMIZERS.get(thing.name)
        if base is None or thing.made is None or "**" in thing.fields:
            return None
        momentum = Defaults().constant(thing.fields.get("momentum", thing.fields.get("2")))
        name = f"{base}-momentum" if base == "sgd" and momentum else base
        fused = thing.fields.get("fused")
        words = thing.name
        if fused is not None and Defaults().truth(fused) is not False and fused != Constant(None):
            # `fused=on_gpu` means fused on a GPU.
            name, words = f"{name}-fused", f"{words} (fused)"
        if base == "rmsprop" and momentum:
            words += f" with momentum={momentum}, whose buffer is not counted"
        return self._said("optimizer", name, thing.made, words) if name in OPTIMIZERS else None

    def compiled(self) -> Evidence | None:
        for event in self.record.events:
            if event.name not in ("torch.compile", ".compile"):
                continue
            compiled = set(self.facts.things(event.subject)) | set(self.facts.things(event.first))
            defaults = Defaults()
            if not compiled & self.models or not defaults.follows(event.path):
                continue
            if Defaults().truth(event.arguments.get("disable", Constant(False))) is False:
                words = "torch.compile" if event.name == "torch.compile" else "model.compile()"
                return self._said("compiled", True, event, words + defaults.words.replace("the", "by the", 1))
        return None

    def layout(self) -> Evidence | None:
        """channels_last if the weights or images are in it, since torch then runs convolutions in it."""
        for event in self.record.of("to"):
            layout = Defaults().value(event.arguments.get("memory_format"))
            if not isinstance(layout, Symbol) or not layout.name.startswith("torch.channels_last"):
                continue
            defaults = Defaults()
            if defaults.follows(event.path):
                words = layout.name.removeprefix("torch.") + defaults.words.replace("the", "by the", 1)
                return self._said("layout", "channels_last", event, words)
        return None

    def loss(self) -> Evidence | None:
        """Cross-entropy if the script computes it and no other loss of torch."""
        found: dict[str, Event] = {}
        for backward in self.backwards:
            for event in self.facts.made_by(self.facts.loss_of(backward)):
                match = _LOSS.fullmatch(event.name)
                if match is not None:
                    found[match.group(1)] = event
        if len(found) == 1 and _CROSS_ENTROPY.issuperset(found):
            ((name, event),) = found.items()
            return self._said("loss", "cross_entropy", event, name)
        return None

    def accumulation(self) -> Evidence | None:
        """The number of rounds per step, from a framework's argument or the test around the step."""
        for event in self.forwards:
            count = Defaults().constant(event.changed.get("@accumulation"))
            if isinstance(count, int) and count > 1:
                return self._said("accumulation", count, event, f"gradients of {count} batches for each step")
        found: list[Evidence | None] = []
        for event in self.record.of("step", "scaler_step"):
            for atom in event.path[event.loop.depth :] if event.loop is not None else ():
                operation = atom.subject.operation if isinstance(atom.subject, Thing) else None
                if atom.test == "==" and atom.holds and operation is not None and operation[0] == "%":
                    defaults = Defaults()
                    count = defaults.constant(operation[1][1])
                    if isinstance(count, int) and count > 1:
                        words = f"a step in every {count} rounds{defaults.words}"
                        found.append(self._said("accumulation", count, event, words))
        return _consensus(found)


def _consensus(found: Sequence[Evidence | None]) -> Evidence | None:
    """The first of several statements if all agree; None if they do not or there are none."""
    if not found or None in found:
        return None
    return found[0] if len({item.value for item in found if item is not None}) == 1 else None
