"""A rule on gradients that are zeroed instead of dropped."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, Literal, SourceContext, SourceRule, render
from tclint.source.names.queries import is_test_path, keyword

_GRAPHS = frozenset(("CUDAGraph", "make_graphed_callables", "graph_pool_handle"))
"""Names in files that capture graphs, whose gradients stay where they are."""


class ZeroGradMemset(SourceRule):
    """Gradients set to zero instead of None.

    What it does
    Finds `zero_grad(set_to_none=False)` in files that do not touch `.grad` themselves.

    Why it costs
    Filling every gradient with zeros reads nothing and computes nothing useful, and backward then adds to it
    instead of writing: one more read of all gradients in every step. None is the default since PyTorch 2.0.

    Example
        optimizer.zero_grad(set_to_none=False)

    Use instead
        optimizer.zero_grad()

    When it does not apply
    Code that reads or adds to `p.grad` and relies on it being a tensor; CUDA graphs, whose gradients keep
    their addresses.
    """

    code = "RUN011"
    name = "zero-grad-memset"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Use parameter.grad = None instead of model.zero_grad() or "
        "optimizer.zero_grad(): no memset and no read of the old gradient",
    )
    triggers = ("set_to_none",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        identifiers = context.tables.identifiers
        if is_test_path(context.path) or "grad" in identifiers or identifiers & _GRAPHS:
            return
        if context.amp.framework:
            return
        for function, event, _ in context.program.methods("zero_grad"):
            given = keyword(event.call, "set_to_none", 0)
            if given != Literal(False) or not context.program.unconditional(function, event.block):
                continue
            yield self.finding(
                context.location(event.call.node_id),
                f"`{context.excerpt(event.call.node_id)}` fills gradients with zeros, to which backward "
                "adds.",
                evidence={"set_to_none": False, "function": function.qualified_name},
                fix=Fix("Remove set_to_none=False."),
                identity=f"{function.qualified_name}:{render(event.call.function)}",
            )
