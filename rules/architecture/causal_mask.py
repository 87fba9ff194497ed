"""A causal mask given to fused attention as a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tclint.plugin import Change, Finding, GraphContext, GraphRule, Op
from tclint.plugin.graph import attention_blocks, gain_phrase, indices_of, share_finding

from .fusions import with_causal_attention


class CausalMaskGiven(GraphRule):
    """Fused attention gets a causal mask as a tensor, where it could be told so.

    What it does
    Finds scaled_dot_product_attention whose `attn_mask` hides every later token and nothing else: a triangle,
    in a buffer or made in the forward, whatever it is called. What it holds is known from the operators that
    made it, or from its values. The step is priced with `is_causal=True` and without the mask.

    Why it costs
    FlashAttention takes no mask, so that the slower memory-efficient kernel runs, or cuDNN's with a mask. All
    of them then compute the scores of hidden tokens as well, which is half of the work, and read the mask.

    Example
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    Use instead
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)

    When it does not apply
    Masks that hide anything else (padding, a window, a prefix that sees all), and those of which a trace does
    not show what they hold. A cache of keys in front: `is_causal=True` aligns the mask with the upper left
    corner, and lengths that differ are never reported.
    """

    code = "ARC024"
    name = "causal-mask-given"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch torch.nn.functional.scaled_dot_product_attention: the fused kernels and their conditions",
        "FlashAttention (arXiv 2205.14135): the scores stay on the chip",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        by_line: dict[tuple[str, int], list[Op]] = {}
        for block in attention_blocks(context.graph):
            op = block.ops[0]
            mask = op.input("attn_mask") if op.name == "scaled_dot_product_attention" else None
            if mask is None or op.attributes.get("is_causal"):
                continue
            if block.hides_later(mask, marks_seen=True if mask.dtype == "bool" else None):
                site = op.call_site
                by_line.setdefault((site.path, site.line) if site else ("", 0), []).append(op)
        for ops in by_line.values():
            if context.worth_pricing(indices_of(ops)):
                yield self._finding(context, ops)

    def _finding(self, context: GraphContext, ops: list[Op]) -> Finding:
        change = Change(edit=partial(with_causal_attention, indices=indices_of(ops)))
        effect = context.effect(indices_of(ops), change)
        mask = ops[0].input("attn_mask")
        assert mask is not None
        size = f"{mask.shape[-2]} x {mask.shape[-1]}"
        return share_finding(
            self,
            context,
            ops,
            "attention",
            f", with a mask of {size} that hides later tokens alone; is_causal=True in its place "
            f"{gain_phrase(effect)}",
            effect=effect,
            advice=_advice(ops[0]),
            evidence={"mask": list(mask.shape), "dtype": mask.dtype},
            others="another call with such a mask",
            location=context.call_location(ops[0]),
            change=change,
        )


def _advice(op: Op) -> str:
    if op.module_type == "MultiheadAttention":
        return (
            "Pass is_causal=True beside attn_mask to the layer, with need_weights=False: it then calls "
            "scaled_dot_product_attention without the mask."
        )
    return "Pass is_causal=True and no attn_mask to scaled_dot_product_attention."
