"""A rule on programs that set TF32 through both of its APIs."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import Switch, exclude


class Tf32MixedApi(SourceRule):
    """Both TF32 APIs used with different values.

    What it does
    Follows `allow_tf32`, `torch.set_float32_matmul_precision` and `fp32_precision` in the order in which a
    file sets them, and reports the `fp32_precision` after which the two APIs disagree.

    Why it costs
    It raises. Since PyTorch 2.9 reading an older switch (`allow_tf32`, `get_float32_matmul_precision`,
    and with them `torch.backends.cudnn.flags` and some library code) is a RuntimeError while it
    contradicts the newer one. Setting an older switch also sets the newer one, but not the other way
    round.

    Example
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.fp32_precision = "ieee"

    Use instead
        torch.backends.cuda.matmul.fp32_precision = "ieee"

    When it does not apply
    One API only; equal values; branches of which only one runs (older and newer PyTorch); an older switch
    that is set after the newer one.
    """

    code = "PRC004"
    name = "tf32-mixed-api"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: do not mix the APIs",
        "PyTorch 2.13 aten/src/ATen/Context.cpp: checks of the older getters (behaviour tried on PyTorch "
        "2.13)",
    )
    triggers = ("fp32_precision",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = [switch for switch in context.switches.all if switch.operators]
        found = (
            (newer.event, newer, operator, older)
            for newer in switches
            if newer.last == "fp32_precision" and context.concerns(newer.event)
            for operator in newer.operators
            for older in [_contradicted(newer, operator, switches)]
            if older is not None
        )
        for event, newer, operator, older in distinct(found):
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` contradicts `{context.code(older.event)}` on "
                f"{context.where(older.event, event)}: reading the older switch raises RuntimeError.",
                related=(context.also(older.event, f"the older API says {older.precision}"),),
                evidence={"operator": operator, "legacy": older.precision, "fp32_precision": newer.precision},
                fix=Fix("Set TF32 through one API only: remove one of the two lines."),
                identity=f"{event.place.function.qualified_name}:{operator}",
            )


def _contradicted(newer: Switch, operator: str, switches: list[Switch]) -> Switch | None:
    """The older switch for the same operator that was set to another value before and is not set again."""
    others = [
        switch
        for switch in switches
        if operator in switch.operators
        and not exclude(switch.event.path, newer.event.path)
        # Module bodies run before functions without a known caller.
        and switch.event.run in (0, newer.event.run)
    ]
    older = [switch for switch in others if switch.last != "fp32_precision"]
    before = [switch for switch in older if switch.event.index < newer.event.index]
    after = [switch for switch in others if switch.event.index > newer.event.index]
    if not before or not newer.precision or not before[-1].precision or after:
        return None
    return before[-1] if before[-1].precision != newer.precision else None
