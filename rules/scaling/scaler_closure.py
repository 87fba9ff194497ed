"""Closures given to a scaled step."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Call, Expression, Finding, Fix, SourceContext, SourceRule, dotted
from tclint.source.facts.scaling_view import View


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
    triggers = ("closure", "LBFGS")
    requires = (".step(", "caler")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for view in context.scaling.views:
            for step in view.of("scaler_step"):
                if step.node_id in seen or context.scaling.is_off(view, step):
                    continue
                made, others = context.scaling.origins_of(view, step)
                if others or (not made and view.function.kind != "module" and "." in step.scaler):
                    # A class of the project's own may take closures.
                    continue
                closures = [
                    argument
                    for argument in step.call.arguments[1:]
                    if (argument.keyword == "closure" or (not argument.keyword and not argument.star))
                    and not self._may_be_none(view, argument.value)
                ]
                lbfgs = any(
                    isinstance(value, Call)
                    and any(name.endswith(".LBFGS") for name in context.resolver.called(scope, value))
                    for scope, value in context.resolver.origins_of(view.function, step.optimizer)
                )
                if not closures and not lbfgs:
                    continue
                seen.add(step.node_id)
                what = "takes no closure" if closures else "cannot step LBFGS, which needs a closure"
                yield self.finding(
                    context.location(step.node_id),
                    f"`{step.scaler}.step` {what}: an enabled GradScaler does not support closures.",
                    related=(context.related(step.node_id, "the step"),),
                    evidence={
                        "step": context.excerpt(step.node_id),
                        "closure": bool(closures),
                        "lbfgs": lbfgs,
                    },
                    fix=Fix(
                        "Train such an optimizer without a scaler: in float32 or under bfloat16 autocast."
                    ),
                    identity=f"{view.function.qualified_name}:{step.optimizer}",
                )

    def _may_be_none(self, view: View, value: Expression) -> bool:
        """A wrapper that passes on what it gets: `def step(self, closure=None)`."""
        return any(
            parameter.name == dotted(value) and parameter.default is not None
            for parameter in view.function.parameters
        )
