"""In-place and out= variants of products under autocast."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.syntax.tables import Literal, method_of

_IN_PLACE = frozenset(("addmm_", "addmv_", "addbmm_", "baddbmm_", "addr_"))
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
    triggers = ("out=", "out =", *sorted(_IN_PLACE))
    requires = ("autocast",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            if not context.amp.autocasts.regions(function):
                continue
            for event in function.calls:
                receiver, method = method_of(event.call)
                given = any(
                    argument.keyword == "out" and argument.value != Literal(None)
                    for argument in event.call.arguments
                )
                called = context.resolver.called(function, event.call)
                by_out = given and method in _OUT and any(name == f"torch.{method}" for name in called)
                if not by_out and not (method in _IN_PLACE and receiver is not None):
                    continue
                region = context.amp.autocasts.effective(function, event.block)
                if region is None:
                    continue
                what = "out=" if by_out else "in-place"
                yield self.finding(
                    context.location(event.call.node_id),
                    f"Autocast does not touch {what} ops: `{context.excerpt(event.call.node_id, 60)}` "
                    "runs in "
                    "the dtype of its tensors.",
                    related=(context.related(region.node_id, "autocast is on from here"),),
                    evidence={"call": context.excerpt(event.call.node_id), "kind": what},
                    fix=Fix("Use the op that returns a new tensor."),
                    identity=f"{function.qualified_name}:{context.excerpt(event.call.node_id)}",
                )
