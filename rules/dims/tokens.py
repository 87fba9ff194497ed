"""Numbers of tokens: dims that come from the data, not from the layers."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.attention import AttentionBlock, attention_blocks
from tclint.analysis.findings import PADS, annotate_if_compile_fixes
from tclint.analysis.layers import (
    Line,
    gain_phrase,
    indices_of,
    layers_take,
    rounded,
    share_percent,
    worth_pricing,
)
from tclint.analysis.widths.alignment import efficient_multiple, is_misaligned
from tclint.analysis.widths.bounds import alignment_gain_percent
from tclint.analysis.widths.misalignment import SMALLEST_PADDED_OUTPUT
from tclint.analysis.widths.padding import Padding, best_padding
from tclint.plugin import Finding, Fix, GraphContext, GraphRule

_GROWING = 3
"""From this number of different misaligned lengths on one line on, its keys are taken to grow from call to
call."""


class TokenCountMisaligned(GraphRule):
    """Attention is written out over a number of tokens that is not a multiple of 8.

    What it does
    Looks at the number of keys of every attention written out as product, softmax and product (8 for fp16
    and bf16, 4 for TF32) and prices the model on sequences padded to the next multiple.

    Why it costs
    The scores have the number of keys as their contiguous dim: with 197 tokens every row of scores and of
    weights starts at an unaligned address, and the product with the values has an odd inner dim. The
    tokens of a linear layer are rows, which are contiguous in none of its matrices: their number alone
    costs nothing.

    Example
        scores = q @ k.transpose(-2, -1)                      # 509 tokens
        x = scores.softmax(-1) @ v

    Use instead
        x = F.scaled_dot_product_attention(q, k, v)           # its kernels pad on the chip
        tokenizer(texts, padding=True, pad_to_multiple_of=8)  # or pad and mask: 512 tokens

    When it does not apply
    Fused attention. Decoding, where the keys grow by one with each call, and windows of a fixed, small
    size. Lengths that vary from batch to batch are padded by the collate function, which a trace of the
    model does not show: trace the length that training uses.
    """

    code = "DIM009"
    name = "token-count-misaligned"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: pad sequences to a multiple of 8",
        "NVIDIA Linear/Fully-Connected Layers User's Guide, checklist: dims divisible by 8 (fp16) or 4 "
        "(TF32)",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from annotate_if_compile_fixes(context, self._check, PADS)

    def _check(self, context: GraphContext) -> Iterator[Finding]:
        precision = context.settings.precision
        by_length: dict[int, list[AttentionBlock]] = {}
        for block in attention_blocks(context.graph):
            if not block.is_fused and is_misaligned(block.key_length, precision):
                by_length.setdefault(block.key_length, []).append(block)
        lengths: dict[Line, set[int]] = {}
        for blocks in by_length.values():
            for block in blocks:
                lengths.setdefault(_line(block), set()).add(block.key_length)
        for blocks in by_length.values():
            if any(len(lengths[_line(block)]) >= _GROWING for block in blocks):
                continue  # one token more at each call: decoding
            finding = self._finding(context, blocks)
            if finding is not None:
                yield finding

    def _finding(self, context: GraphContext, blocks: list[AttentionBlock]) -> Finding | None:
        multiple = efficient_multiple(context.settings.precision)
        products = [op for block in blocks for op in block.ops if op.kind == "matmul"]
        concerned = indices_of(products)
        if multiple is None or not worth_pricing(context, concerned):
            return None
        bound = alignment_gain_percent(context, concerned, (multiple,))
        if max(bound.values(), default=0.0) < context.settings.min_gain_percent:
            return None
        scores = [block.ops[0] for block in blocks]
        groups = {
            group.id: group
            for op in scores
            if (group := context.dims.group_of_output(op.index, 0, len(op.outputs[0].shape) - 1)) is not None
        }
        outcome = best_padding(context, tuple(groups.values()), concerned)
        shares = share_percent(context, concerned)
        length = blocks[0].key_length
        message = (
            f"{length} tokens are not a multiple of {multiple}: with their products, "
            f"{layers_take(scores, 'attention', shares)}"
        )
        evidence = {
            "tokens": length,
            "multiple": multiple,
            "share_percent": rounded(shares),
            "alignment_costs_at_most_percent": rounded(bound),
        }
        fix = Fix(
            "Use torch.nn.functional.scaled_dot_product_attention, whose kernels pad on the chip, or pad the "
            f"sequences to a multiple of {multiple} and mask the added tokens."
        )
        location = context.call_location(scores[0])
        if not isinstance(outcome, Padding):
            if length < SMALLEST_PADDED_OUTPUT:
                return None  # manual-attention reports windows and neighbourhoods of a fixed size
            return self.finding(
                location,
                f"{message}; of the step, at most {max(bound.values()):.1f} % is lost to misalignment.",
                effect=outcome,
                evidence=evidence,
                fix=fix,
            )
        return self.finding(
            location,
            f"{message}; padding {outcome.phrase()} {gain_phrase(outcome.effect)}.",
            effect=outcome.effect,
            evidence=evidence | outcome.evidence(),
            fix=fix,
            change=outcome.change,
        )


def _line(block: AttentionBlock) -> Line:
    site = block.ops[0].call_site
    return (site.path, site.line) if site else ("", 0)
