"""Closures given to a scaled step."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct, options_of
from tclint.plugin.source import NONE, SCALES

from .wording import names_of


class ScalerClosure(SourceRule):
    """`scaler.step` with a closure, or with an optimizer that needs one.

    What it does
    Finds `scaler.step(optimizer, closure)` and scaler steps of `torch.optim.LBFGS`.

    Why it costs
    An enabled scaler raises "RuntimeError: Closure use is not currently supported if GradScaler is
    enabled" for `closure=`; a closure passed by position is run, but its gradients are never unscaled or
    checked. LBFGS cannot step without a closure: it raises TypeError.

    Example
        optimizer = torch.optim.LBFGS(model.parameters())
        scaler.step(optimizer, closure)

    Use instead
        optimizer.step(closure)     # in float32 or under bfloat16 autocast, without a scaler

    When it does not apply
    A scaler that is disabled.
    """

    code = "AMP021"
    name = "scaler-closure"
    level = "error"
    confidence = "high"
    sources = ("PyTorch 2.13 torch/amp/grad_scaler.py, GradScaler.step: closures are refused",)
    triggers = (".step(",)
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for step, what in distinct(self._wrong(context)):
            scaler, optimizer = names_of(step)
            yield self.finding(
                context.at(step),
                f"`{scaler}.step` {what}: an enabled GradScaler does not support closures.",
                related=(context.also(step, "the step"),),
                evidence={
                    "step": context.code(step),
                    "closure": "closure" in step.arguments or "1" in step.arguments,
                    "lbfgs": "LBFGS" in what,
                },
                fix=Fix("Train such an optimizer without a scaler: in float32 or under bfloat16 autocast."),
                identity=f"{step.place.function.qualified_name}:{optimizer}",
            )

    def _wrong(self, context: SourceContext) -> Iterator[tuple[Event, str]]:
        for step in context.scaled_steps.calls("scaler_step"):
            scalers = context.facts.kinds(step.subject, "scaler")
            if any(context.facts.root(scaler) is not scaler for scaler in scalers):
                # Unknown code may have made a scaler that accepts closures.
                continue
            closure = step.arguments.get("closure") or step.arguments.get("1")
            optimizers = context.scaled_steps.optimizers_of(step)
            if closure is not None and all(option != NONE for option, _ in options_of(closure)):
                yield step, "takes no closure"
            elif any(optimizer.name == "torch.optim.LBFGS" for optimizer in optimizers):
                yield step, "cannot step LBFGS, which needs a closure"
