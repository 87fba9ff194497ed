"""Attention written out where a fused kernel would do, as the source itself shows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import TRAINS, Place


class ManualAttentionInSource(SourceRule):
    """Attention is written out as product, softmax and product, with its scores in memory.

    What it does
    Finds softmax(q k^T) v of several heads in one function, where nothing but scale, mask and dropout
    happens to the scores and nothing else reads them. Nothing is run; for a traced model the change is
    priced as well.

    Why it costs
    The scores of S tokens are S x S values per head. Written out, they go to memory after the first
    product, and each of scale, mask, softmax, dropout reads and writes them again, in fp32 where autocast
    wants it; backward does so once more. The fused kernels keep them on the chip.

    Example
        weights = (q @ k.transpose(-2, -1) / d ** 0.5).softmax(-1)
        x = self.dropout(weights) @ v

    Use instead
        x = F.scaled_dot_product_attention(q, k, v)     # dropout_p=... while training

    When it does not apply
    The weights are returned, kept or looked at. Something other than scale, mask and dropout happens to
    the scores; a learned bias is added to them. Files that already call a fused kernel, where this is the
    other branch. Tensors that do not have four dims, for which no fused kernel runs. torch before 2.1.
    Short sequences gain little, and training code does not show their length: give tclint the model as
    `file.py:callable` to have it priced. `--fix` rewrites attention that has no mask and whose statements
    follow each other; a mask may say what to keep or what to leave out, and the two are not told apart.
    """

    code = "ARC005"
    name = "manual-attention"
    level = "warning"
    confidence = "medium"
    sources = (
        "PyTorch torch.nn.functional.scaled_dot_product_attention: the fused kernels and their conditions",
        "FlashAttention (arXiv 2205.14135): the scores stay on the chip",
    )
    triggers = ("softmax(", "Softmax(")
    program = TRAINS
    # The file must contain two products.
    pattern = re.compile(rb"(?s)\A(?:.*?(?: @ |matmul\(|bmm\(|einsum\()){2}")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        numbers, seen = Counter[str](), set[Place]()
        for attention in context.attentions.written():
            place = attention.softmax.place
            if place in seen or not context.concerns(attention.softmax):
                continue
            if context.attentions.fuses(attention.softmax):
                continue
            seen.add(place)
            name = place.function.qualified_name
            numbers[name] += 1
            arguments = ["q, k, v"]
            arguments += ["attn_mask=..."] * attention.masked + ["dropout_p=..."] * attention.dropped
            yield self.finding(
                context.at(attention.softmax),
                "Attention is written out, so its scores go to memory after the first product and after "
                "each step up to the second; scaled_dot_product_attention keeps them on the chip.",
                level="info",
                evidence={"masked": attention.masked, "dropout": attention.dropped},
                fix=Fix(
                    f"Call torch.nn.functional.scaled_dot_product_attention({', '.join(arguments)}) instead "
                    "of the two products and the softmax, on [batch, heads, tokens, features]: with fewer or "
                    "more dims it writes the scores out itself.",
                    needs="torch 2.1",
                ),
                identity=f"{name}:{numbers[name]}",
            )
