"""A rule on matrix products that autocast leaves in float32 because none of its lists names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from tclint.cost.transforms.casts import own_half_dtype
from tclint.graph.ops.op_tables import autocast_lists
from tclint.plugin import PRECISION_FACTS, Change, Finding, Graph, GraphContext, GraphRule, Op
from tclint.plugin.graph import gain_phrase, indices_of, share_finding


class ProductOutsideAutocast(GraphRule):
    """A matrix product runs in float32 under autocast, because its operator is not on autocast's lists.

    What it does
    Finds matrix products that autocast does not cast: those on none of its lists (the grouped products of
    mixtures of experts), those that it only promotes (`bilinear`), and in-place ones. Reports them where
    they get float32 tensors in a step under autocast, priced with their inputs cast to the autocast
    dtype.

    Why it costs
    Autocast casts the inputs of the operators that it lists. Any other operator takes its inputs as they
    come, and weights are float32: the product then runs without Tensor Cores, although the step runs
    under autocast.

    Example
        with torch.autocast("cuda", torch.bfloat16):
            y = torch._grouped_mm(x, self.weight, offs=offsets)     # float32

    Use instead
        with torch.autocast("cuda", torch.bfloat16):
            y = torch._grouped_mm(x.bfloat16(), self.weight.bfloat16(), offs=offsets)

    When it does not apply
    Models whose own weights have 16 bits, regions with autocast disabled, operators that autocast runs in
    float32 for their range (`cdist`).
    """

    code = "AMP029"
    name = "product-outside-autocast"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Autocast Op Reference and Op Eligibility: ops on no "
        "list run in their inputs' type",
        "PyTorch 2.13 aten/src/ATen/autocast_mode.h: the lists of operators",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        facts = PRECISION_FACTS[context.settings.precision]
        if not facts.autocast or own_half_dtype(context.graph) is not None:
            return
        runs = context.estimate(context.scenarios[0]).ops
        by_name: dict[str, list[Op]] = {}
        for op in context.graph.products:
            if _is_left_out(op) and _is_float32(runs[op.index]):
                by_name.setdefault(op.name + "_" * op.in_place, []).append(op)
        for name, ops in by_name.items():
            if not context.worth_pricing(indices_of(ops)):
                continue
            change = Change(edit=partial(cast_by_hand, ops=ops))
            effect = context.effect(indices_of(ops), change)
            yield share_finding(
                self,
                context,
                ops,
                f"`{name}` product",
                f", in float32 without Tensor Cores: autocast leaves `{name}` as it is; casting its inputs "
                f"to {facts.dtype} {gain_phrase(effect)}",
                effect=effect,
                advice=f"Cast the inputs and weights of `{name}` to torch.{facts.dtype} at the call, or run "
                "the model itself in bfloat16.",
                evidence={"operator": name, "runs_in": "float32"},
                others="another such product",
                location=context.call_location(ops[0]),
                identity=name,
                change=change,
            )


def _is_left_out(op: Op) -> bool:
    unlisted = op.in_place or autocast_lists().policy(op.name) in ("none", "promote")
    return unlisted and not op.autocast_disabled


def _is_float32(op: Op) -> bool:
    floating = [spec.dtype for spec in op.inputs if spec.is_floating]
    return bool(floating) and set(floating) == {"float32"}


def cast_by_hand(graph: Graph, ops: Iterable[Op]) -> Graph:
    """The ops in the autocast dtype, where autocast leaves them as they are."""
    return graph.with_ops(
        {
            op.index: replace(op, cast_by_hand=True, in_place=False)
            for op in (graph.ops[o.index] for o in ops)
        },
    )
