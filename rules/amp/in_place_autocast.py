"""In-place and out= variants of products under autocast."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import HALVES, NONE

_IN_PLACE = frozenset((".addmm_", ".addmv_", ".addbmm_", ".baddbmm_", ".addr_"))
_OUT = frozenset(("mm", "matmul", "bmm", "addmm", "addmv", "addbmm", "baddbmm", "mv", "einsum", "linear"))


class InPlaceUnderAutocast(SourceRule):
    """An in-place or `out=` matrix product, which autocast does not touch.

    What it does
    Finds `addmm_`, `addmv_`, `addbmm_`, `baddbmm_`, `addr_` and matrix products with `out=` under
    autocast.

    Why it costs
    Autocast casts only out-of-place ops: these run in the dtype of their tensors, usually float32 and
    without the 16-bit Tensor Core rate, or raise when the dtypes differ.

    Example
        with torch.autocast("cuda"):
            torch.mm(a, b, out=c)

    Use instead
        with torch.autocast("cuda"):
            c = torch.mm(a, b)

    When it does not apply
    In-place ops that are not matrix products, regions that are disabled.
    """

    code = "AMP026"
    name = "inplace-or-out-under-autocast"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Op Eligibility: only out-of-place ops are autocast",
    )
    triggers = ("out=", *sorted(_IN_PLACE))
    pattern = re.compile(rb"[(,]\s*out\s*=|\.(?:addbmm|addmm|addmv|addr|baddbmm)_\(")
    program = HALVES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for event in distinct(event for event in context.record.of("op", "call") if _kind(event)):
            what, found = _kind(event), context.dtypes.autocast(event)
            if found is None:
                continue
            entered = found[0].entered
            assert entered is not None
            yield self.finding(
                context.at(event),
                f"Autocast does not touch {what} ops: `{context.code(event, 60)}` runs in the dtype of its "
                "tensors.",
                related=(context.also(entered, "autocast is on from here"),),
                evidence={"call": context.code(event), "kind": what},
                fix=Fix("Use the op that returns a new tensor."),
                identity=f"{event.place.function.qualified_name}:{context.code(event)}",
            )


def _kind(event: Event) -> str:
    """'out=' or 'in-place' for such a matrix product; '' for other events."""
    if event.name in _IN_PLACE:
        return "in-place"
    package, _, name = event.name.rpartition(".")
    by_out = package == "torch" and name in _OUT and event.arguments.get("out", NONE) != NONE
    return "out=" if by_out else ""
