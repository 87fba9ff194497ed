"""Work that a price lacks or takes for other work: operators without a formula, gradients written out."""

from __future__ import annotations

from collections.abc import Sequence

from tclint.core.text import listed
from tclint.graph.lowering.work import Gap
from tclint.graph.ops import Assumption, Graph
from tclint.graph.ops.op_tables import operators

_DOUBTFUL_PERCENT = 25.0
"""Of the operators, or of the forward FLOPs: with more of them unpriced, the figures are of another step."""
_FREE = operators("memory", "free")


def unpriced(graph: Graph, gaps: Sequence[Gap]) -> Assumption | None:
    """That operators without a formula take no time, where they are many; the report lists all of them."""
    missing = {index for gap in gaps for index in gap.op_indices}
    running = sum(op.kind != "view" and op.name not in _FREE for op in graph.ops)
    flops_percent = sum(gap.flops_percent or 0.0 for gap in gaps)
    percent = max(100.0 * len(missing) / max(running, 1), flops_percent)
    if percent < _DOUBTFUL_PERCENT:
        return None
    names = listed(list(dict.fromkeys(gap.name for gap in gaps)), 3)
    told = f"that {len(missing)} of {running} operators, which have no formula ({names}), take no time"
    return Assumption(told, is_doubtful=True)


def written_backward(graph: Graph) -> Assumption | None:
    """That backward passes which the model's code writes out do what autograd would do in their place."""
    own = [op for op in graph.ops if op.has_own_backward and op.kind != "view"]
    if not own:
        return None
    running = sum(op.kind != "view" and op.name not in _FREE for op in graph.ops)
    told = (
        f"the backward of custom autograd.Functions ({len(own)} of {running} operators) is priced as the "
        "derivative of their forward"
    )
    return Assumption(told, own[0].call_site)
