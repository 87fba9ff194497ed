"""Frozen networks: those that a 16-bit training runs with float32 weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.project.launchers import CHOOSE_PRECISION, KEEP_MASTERS, launcher_with
from tclint.source.questions.defaults import Defaults
from tclint.source.questions.optimizers import Optimizers
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.questions.precision.float32 import Float32
from tclint.source.questions.steps import Step, Steps
from tclint.source.run.values import FALSE, NONE, Event, Region, Symbol, Thing

_RUNS = ("forward", "call")


class Frozen(NamedTuple):
    """A frozen network with float32 weights in a step whose loss is computed under a 16-bit autocast."""

    network: Thing
    made: Event
    """It loads the network."""
    use: Event
    """It runs the network."""
    region: Region
    """The autocast."""
    is_inside: bool
    """Whether the network runs under the autocast."""


class FrozenNetworks:
    """Answers about one program."""

    def __init__(self, autocasts: Autocasts, optimizers: Optimizers, float32: Float32, steps: Steps) -> None:
        self.autocasts = autocasts
        self.optimizers = optimizers
        self.float32 = float32
        self.steps = steps
        self.facts = autocasts.facts

    def in_float32(self) -> Iterator[Frozen]:
        """The loaded networks that are frozen and have float32 weights because nobody chose another dtype."""
        for step in self.steps.all:
            region = self._region_of(step) if step.steps else None
            for use in step.events if region is not None else ():
                if use.kind not in _RUNS or not self._is_of_step(use, step):
                    continue
                around = self.autocasts.around(use)
                is_island = around is not None and self.facts.is_on(around[1], use.path) is False
                if is_island or self._gets_float32(use) or (around is not None and self._is_cast(step)):
                    continue
                for network in self.facts.kinds(use.subject, "module"):
                    if self._is_loaded(network) and self._is_frozen(network, use):
                        assert network.made is not None
                        assert region is not None
                        yield Frozen(network, network.made, use, region, around is not None)

    def _region_of(self, step: Step) -> Region | None:
        """The autocast under which a step computes its loss, if it is on by default or something beside the
        program speaks of turning it on."""
        for backward in step.backwards:
            for region, context, event in self.autocasts.origins(self.facts.loss_of(backward)):
                is_on = self.facts.is_on(context, event.path)
                if is_on or Defaults().truth(context.fields.get("enabled")):
                    return region
                made = next(place for place in reversed(event.places) if not place.file.is_library)
                if launcher_with(made.file.path, CHOOSE_PRECISION):
                    return region
        return None

    def _is_of_step(self, use: Event, step: Step) -> bool:
        """Whether an event computes with tensors in each round of a step, and in no loop within it."""
        is_repeated = use.loop in step.loops if step.loops else use.loop is None
        return is_repeated and any(
            thing.kind == "tensor" for value in use.arguments.values() for thing in self.facts.held(value)
        )

    def _gets_float32(self, use: Event) -> bool:
        """Whether somebody cast what a network gets to float32."""
        casts = [thing.made for value in use.arguments.values() for thing in self.facts.things(value)]
        return any(
            made is not None and made.kind == "to" and made.arguments.get("dtype") == Symbol("torch.float32")
            for made in casts
        )

    def _is_cast(self, step: Step) -> bool:
        """Whether DeepSpeed or the like may cast the networks that it trains, with their frozen parts."""
        losses = (self.facts.loss_of(backward) for backward in step.backwards)
        scalers = (scaler for loss in losses for scaler in self.facts.scalers_of(loss))
        file = next(
            (place.file for place in reversed(step.steps[0].places) if not place.file.is_library), None
        )
        return any("@masters" in scaler.fields for scaler in scalers) or (
            file is not None and bool(launcher_with(file.path, KEEP_MASTERS))
        )

    def _is_loaded(self, network: Thing) -> bool:
        """Whether a network comes from a checkpoint whose weights are float32, and nothing chose a dtype."""
        made, chosen = network.made, (network.fields.get(name, NONE) for name in ("@dtype", "@quantized"))
        if made is None or not made.name.endswith(".from_pretrained") or "**" in made.arguments:
            return False
        return all(value == NONE for value in chosen) and self.float32.is_float32(network)

    def _is_frozen(self, network: Thing, use: Event) -> bool:
        if "@adapters" in use.changed or use.changed.get("@requires_grad") == FALSE:
            return True
        updated = {
            thing for _, optimizer in self.optimizers.all for thing in self.optimizers.updated_by(optimizer)
        }
        is_trained = any(self.facts.root(thing) is network for thing in updated)
        return not is_trained and not self.autocasts.records_gradients(use)
