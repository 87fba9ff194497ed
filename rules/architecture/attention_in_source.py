"""Attention written out where a fused kernel would do, as the source itself shows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tclint.plugin import Assignment, CallEvent, Finding, Fix, Function, SourceContext, SourceRule
from tclint.source.layers.written_attention import written_attentions
from tclint.source.names.queries import is_test_path, names_in

_HAS_OTHER = re.compile(
    r"scaled_dot_product|flash|xformers|memory_efficient|sdpa|flex_att|attn_impl|attention_impl|onnx|tensorrt"
)
"""Identifiers, in lower case, of files that choose between kernels, or write for exporters."""


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
    requires = ("head", "torch")
    # Two products, in a file that names no fused kernel.
    pattern = re.compile(
        rb"(?s)\A(?!.*?(?:scaled_dot_product|[fF]lash_?[aA]tt|xformers|memory_efficient|sdpa|flex_att))"
        rb"(?:.*?(?: @ |matmul\(|bmm\(|einsum\()){2}"
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path) or not context.torch_may_be((2, 1)):
            return
        if any(_HAS_OTHER.search(name.lower()) for name in context.tables.identifiers):
            return
        seen: Counter[str] = Counter()
        for attention in written_attentions(context):
            function = attention.function
            callers = [caller for caller, _ in context.resolver.callers.get(function.index, ())]
            if not any(_has_heads(context, place) for place in (function, *callers)):
                continue
            seen[function.qualified_name] += 1
            number = seen[function.qualified_name]
            arguments = ["q, k, v"]
            arguments += ["attn_mask=..."] * attention.masked + ["dropout_p=..."] * attention.dropped
            yield self.finding(
                context.location(attention.softmax.node_id),
                "Attention is written out, so its scores go to memory after the first product and after "
                "each step up to the second; scaled_dot_product_attention keeps them on the chip.",
                level="info",
                evidence={"masked": attention.masked, "dropout": attention.dropped},
                fix=Fix(
                    f"Call torch.nn.functional.scaled_dot_product_attention({', '.join(arguments)}) instead "
                    "of the two products and the softmax, on [batch, heads, tokens, features]: with fewer or "
                    "more dims it writes the scores out itself."
                ),
                identity=f"{function.qualified_name}:{number}",
            )


def _has_heads(context: SourceContext, function: Function) -> bool:
    """The function or its class speaks of heads: their features are few, as the fused kernels want them."""
    owner = context.tables.class_of(function)
    around = [function, *(context.values.members(owner) if owner is not None else ())]
    for member in around:
        if any("head" in parameter.name.lower() for parameter in member.parameters):
            return True
        for event in member.events:
            names: set[str] = set()
            if isinstance(event, CallEvent):
                names = names_in(event.call)
            elif isinstance(event, Assignment):
                names = names_in(event.value) | set(event.targets)
            if any("head" in name.lower() for name in names):
                return True
    return False
