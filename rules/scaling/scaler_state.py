"""Checkpoints without the loss scaler's state."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import SCALES, UNSEEN, FunctionValue


class ScalerStateNotSaved(SourceRule):
    """A checkpoint with the optimizer's state but without the scaler's.

    What it does
    Finds `torch.save`, or a function of the project named for saving, with a dict that holds an
    optimizer's `state_dict()`, which only a resumed run needs, in a script that makes and uses a
    GradScaler without ever asking for its `state_dict()`.

    Why it costs
    A resumed run starts with the scale of 65536 instead of the one it had reached: its first steps
    overflow and are skipped, and it does not reproduce the interrupted run bit for bit.

    Example
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

    Use instead
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scaler": scaler.state_dict()}, path)

    When it does not apply
    Files that save weights only, scalers that are disabled, checkpoints made elsewhere, frameworks.
    """

    code = "AMP018"
    name = "scaler-state-not-saved"
    level = "info"
    confidence = "high"
    sources = ("PyTorch Automatic Mixed Precision recipe, Saving/Resuming: save the scaler's state as well",)
    triggers = (".state_dict", "caler")
    pattern = re.compile(rb"\.state_dict\b|caler")  # a script may leave saving to another file
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        facts, record = context.facts, context.record
        scales = [item for item in context.scaled_steps.calls("scale") if self._is_made(context, item)]
        if not scales:
            return
        scalers = {scaler for scale in scales for scaler in facts.kinds(scale.subject, "scaler")}
        for event in record.of("state", "load", *UNSEEN):
            # The event reads the scaler's state, or passes the scaler to unknown code that may save it.
            is_given = any(not scalers.isdisjoint(facts.held(value)) for value in event.inputs)
            if is_given and not self._is_known(event, scales):
                return
        made = next(scaler.made for scaler in scalers if scaler.made is not None)
        for save in record.of("save", *UNSEEN):
            state = self._optimizer_state(context, save)
            if state is not None:
                yield self._report(context, save, state, made)
                return

    def _is_known(self, event: Event, scales: list[Event]) -> bool:
        """Whether an event is one more call of a function that was followed until it scaled a loss."""
        called = event.result
        return isinstance(called, FunctionValue) and any(
            place.function is called.function for scale in scales for place in scale.places
        )

    def _is_made(self, context: SourceContext, scale: Event) -> bool:
        scalers = context.facts.kinds(scale.subject, "scaler")
        return any(scaler.made is not None and context.gradients.is_certain(scaler) for scaler in scalers)

    def _optimizer_state(self, context: SourceContext, save: Event) -> Event | None:
        """The event that reads the optimizer state saved in a dict whose keys are all known."""
        facts = context.facts
        for holder in (item for value in save.arguments.values() for item in facts.held(value)):
            if holder.kind != "dict" or "[*]" in holder.fields:
                continue
            for made in (item.made for item in facts.held(holder)):
                if made is not None and made.kind == "state" and facts.kinds(made.subject, "optimizer"):
                    return made
        return None

    def _report(self, context: SourceContext, save: Event, state: Event, made: Event) -> Finding:
        return self.finding(
            context.at(save),
            f"The checkpoint holds `{context.code(state)}` but not the GradScaler's state: a resumed run "
            "starts with its initial scale of 65536.",
            related=(
                context.also(made, "the scaler"),
                context.also(state, "the optimizer's state is saved here"),
            ),
            evidence={"save": context.shown(save), "scaler": context.code(made)},
            fix=Fix("Save `scaler.state_dict()` as well and load it when resuming."),
            identity=context.shown(save),
        )
