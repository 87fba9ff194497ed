"""Numbers of tokens: dims that come from the data, not from the layers."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.attention import AttentionBlock, attention_blocks
from tclint.analysis.compile_fixes import PADS, marked_if_handled
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
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
from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example

_GROWING = 3
"""Misaligned lengths of one line from which on its keys are taken to grow from call to call."""


class TokenCountMisaligned(GraphRule):
    """Attention is written out over a number of tokens that is not a multiple of 8.

    What it does
    Looks at the number of keys of every attention written out as product, softmax and product (8 for fp16
    and bf16, 4 for TF32) and prices the model on sequences padded to the next multiple.

    Why it costs
    The scores have the number of keys as their contiguous dim: with 197 tokens every row of scores and of
    weights starts at an unaligned address, and the product with the values has an odd inner dim. The
    tokens of a linear layer are rows, which are contiguous in none of its matrices: their number alone
    costs nothing there.

    Example
        scores = q @ k.transpose(-2, -1)                      # 509 tokens
        x = scores.softmax(-1) @ v

    Use instead
        x = F.scaled_dot_product_attention(q, k, v)           # its kernels pad on the chip
        tokenizer(texts, padding=True, pad_to_multiple_of=8)  # or pad and mask: 512 tokens

    When it does not apply
    Fused attention. Decoding, whose keys grow by one with each call, and windows of a fixed, small size.
    Lengths that vary from batch to batch are padded by the collate function, which is
    not seen here: trace the length that training uses.

    References
    NVIDIA, Train With Mixed Precision, Optimizing for Tensor Cores: pad sequences to a multiple of 8.
    NVIDIA, Linear/Fully-Connected Layers User's Guide, checklist.
    """

    code = "DIM009"
    name = "token-count-misaligned"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores",
        "NVIDIA Linear/Fully-Connected Layers User's Guide, checklist",
    )
    invalid = (
        Example(
            """
from torch import empty, nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (w // self.heads) ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, s, w))


def build_model():
    return nn.Sequential(*[Attention(768, 12) for _ in range(3)])


def example_inputs():
    return empty(32, 509, 768)
""",
            "509 tokens, twelve heads",
        ),
        Example(
            """
from torch import cat, empty, nn, zeros


class VisionTransformer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.token = nn.Parameter(zeros(1, 1, width))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = cat([self.token.expand(len(x), -1, -1), x], 1)
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (w // self.heads) ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, s, w))


def build_model():
    return VisionTransformer(384, 6)


def example_inputs():
    return empty(64, 3, 224, 224)
""",
            "196 patches and a class token",
        ),
        Example(
            """
from torch import empty, nn


class CrossAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)

    def forward(self, x, memory):
        k, v = self.kv(memory).chunk(2, -1)
        return (self.q(x) @ k.transpose(1, 2)).softmax(-1) @ v


def build_model():
    return CrossAttention(256)


def example_inputs():
    return empty(16, 4096, 256), empty(16, 1021, 256)
""",
            "the keys of a cross attention",
        ),
    )
    valid = (
        Example(
            """
from torch import empty, nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, w))


def build_model():
    return Attention(768, 12)


def example_inputs():
    return empty(32, 509, 768)
""",
            "fused",
        ),
        Example(
            """
from torch import empty, nn


def build_model():
    return nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))


def example_inputs():
    return empty(7, 509, 768)
""",
            "an odd number of rows is harmless in a linear layer",
        ),
        Example(
            """
from torch import empty, nn


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))
        self.score = nn.Linear(768, 1)

    def forward(self, x):
        x = self.body(x)
        return self.score(x).transpose(1, 2).softmax(-1) @ x


def build_model():
    return Pool()


def example_inputs():
    return empty(32, 509, 768)
""",
            "a pooled query: next to nothing",
        ),
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from marked_if_handled(context, self._check, PADS)

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
            f"{length} tokens are no multiple of {multiple}: with their products, "
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
                return None  # a window or a neighbourhood of a fixed size: manual-attention speaks of it
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


RULES = (TokenCountMisaligned,)
