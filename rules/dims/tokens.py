"""Numbers of tokens: dims that come from the data, not from the layers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tclint.plugin import Change, DimsUnresolved, Effect, Finding, Fix, GraphContext, GraphRule, Op, resize
from tclint.plugin.graph import (
    AttentionBlock,
    DimGroup,
    Padding,
    alignment_gain_percent,
    annotate_if_compile_fixes,
    attention_blocks,
    best_padding,
    by_line,
    efficient_multiple,
    gain_phrase,
    indices_of,
    is_misaligned,
    latency_bound,
    layers_take,
    round_up,
    rounded,
    share_finding,
)

_FEWEST = 64
"""Fewer are a window or a neighbourhood of a fixed size."""
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
        yield from annotate_if_compile_fixes(context, self._check)

    def _check(self, context: GraphContext) -> Iterator[Finding]:
        precision = context.settings.precision
        by_length: dict[int, list[AttentionBlock]] = {}
        for block in attention_blocks(context.graph):
            if not block.is_fused and is_misaligned(block.key_length, precision):
                by_length.setdefault(block.key_length, []).append(block)
        lengths: dict[tuple[str, int], set[int]] = {}
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
        if multiple is None or not context.worth_pricing(concerned):
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
        shares = context.share_percent(concerned)
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
            if length < _FEWEST:
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
            f"{message}; padding {outcome.phrase()} {outcome.gain_phrase()}.",
            effect=outcome.effect,
            evidence=evidence | outcome.evidence(),
            fix=fix,
            change=outcome.change,
        )


def _line(block: AttentionBlock) -> tuple[str, int]:
    site = block.ops[0].call_site
    return (site.path, site.line) if site else ("", 0)


_FEW_TOKENS = 128
_LIKED = 64
"""Capacities that are multiples of this also fill the tiles of a product."""
_ROUTED_BY = frozenset(
    {"index", "index_select", "gather", "_unsafe_index", "masked_select", "take_along_dim"}
)
_NUMBER = re.compile(r"\.\d+(?=\.|$)")


class ExpertTokens(GraphRule):
    """The experts of a mixture get few tokens each, or a number that is not a multiple of 8.

    What it does
    Finds experts - several equal linear layers of a list that read selected rows, or one batched product
    with a weight per expert - and reports them when each gets fewer than 128 tokens or, with fixed
    capacities, a number that is not a multiple of 8 (16 for fp8), and their share of the step is large
    enough. Where the capacity is a dim of its own, the priced alternative is 128 tokens (compared per
    token), or the next multiple.

    Why it costs
    Every expert reads all its weights for the tokens it gets. With fewer than 128 the GPU waits for
    memory, as a dense layer with such a small batch would.

    Example
        experts = nn.ModuleList([Expert(1024, 4096) for _ in range(64)])      # 2048 tokens, 32 each

    Use instead
        experts = nn.ModuleList([Expert(1024, 4096) for _ in range(8)])       # 256 each; or a larger batch

    When it does not apply
    Inference with few tokens, and models that wait as a whole (latency-bound-layers). In 16 bits an odd
    capacity is a number of rows, which are contiguous in no matrix: it costs next to nothing, as its
    price shows. Routing decides how many tokens an expert gets: tclint spreads them evenly and says so
    among its assumptions.
    """

    code = "DIM016"
    name = "expert-tokens"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA Transformer Engine documentation, grouped products: dims divisible by 16 in fp8",
        "NVIDIA Linear/Fully-Connected Layers User's Guide, Batch Size: above 128",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        is_fp8 = "fp8" in (context.settings.quantized, context.settings.precision)
        multiple = 16 if is_fp8 else 8
        found: dict[tuple[object, ...], list[Op]] = {}
        for op in context.graph.products:
            key = _expert_key(op, context)
            if key is not None:
                found.setdefault(key, []).append(op)
        for ops in by_line(self._starved(found, multiple)).values():
            if not context.worth_pricing(indices_of(ops)):
                continue
            tokens = sorted({_tokens(op) for op in ops})
            few = tokens[0] < _FEW_TOKENS
            if few and (context.batch_is_assumed or context.once(latency_bound) is not None):
                continue  # latency-bound-layers reports a latency-bound model once as a whole
            wanted = _FEW_TOKENS if few else round_up(tokens[0], max(multiple, _LIKED))
            effect, change = (
                (Effect(unknown="grouped fp8 products refuse such a capacity: nothing to compare with"), None)
                if is_fp8 and not few
                else _with_capacity(context, ops, wanted, per_token=few)
            )
            gain = "" if effect.unknown else f"; {wanted} {gain_phrase(effect)}{' per token' if few else ''}"
            yield share_finding(
                self,
                context,
                ops,
                "expert product",
                f", with {tokens[0]} tokens per expert"
                + (f", fewer than {_FEW_TOKENS}" if few else f", not a multiple of {multiple}")
                + gain,
                effect=effect,
                advice="Give each expert more tokens (larger batch, fewer experts on a GPU)."
                if few
                else f"Choose a capacity that is a multiple of {max(multiple, _LIKED)}.",
                evidence={"tokens": tokens},
                change=change,
            )

    def _starved(self, found: dict[tuple[object, ...], list[Op]], multiple: int) -> Iterator[Op]:
        for (kind, *_), ops in found.items():
            if kind == "list" and len(ops) < 2:
                continue
            for op in ops:
                tokens = _tokens(op)
                if 0 < tokens < _FEW_TOKENS or (kind == "batched" and tokens % multiple):
                    yield op


def _with_capacity(
    context: GraphContext, ops: list[Op], tokens: int, *, per_token: bool
) -> tuple[Effect, Change | None]:
    """The gain and change of another capacity, per token or for the step that pads to it."""
    groups: dict[str, DimGroup] = {}
    for op in ops:
        if op.kind == "linear":
            return Effect(unknown="how many tokens an expert gets depends on routing"), None
        group = context.dims.group_of_output(op.index, 0, len(op.outputs[0].shape) - 2)
        if group is None or group.composite:
            return Effect(unknown="the capacity cannot be told from the graph"), None
        groups[group.id] = group
    change = resize(dict.fromkeys(groups.values(), tokens))
    if per_token:
        change = replace(change, samples=tokens / _tokens(ops[0]))
    try:
        return context.effect(indices_of(ops), change), change
    except DimsUnresolved as error:
        return Effect(unknown=str(error)), None


def _tokens(op: Op) -> int:
    return op.outputs[0].numel // op.outputs[0].shape[-1] if op.kind == "linear" else op.outputs[0].shape[-2]


def _expert_key(op: Op, context: GraphContext) -> tuple[object, ...] | None:
    """A key that the experts of one layer share; None for a layer that is not an expert."""
    if op.name in ("bmm", "baddbmm", "matmul") and len(op.outputs[0].shape) == 3:
        weight = op.inputs[-1]
        batched = weight.parameter is not None and len(weight.shape) == 3 and weight.shape[0] > 1
        return ("batched", weight.parameter) if batched else None
    number = _NUMBER.search(op.module_path)
    if op.kind != "linear" or number is None or not op.outputs[0].shape:
        return None
    expert = op.module_path.rpartition(".")[0]
    for producer in context.graph.producers(op.inputs[0]):
        if producer.name in _ROUTED_BY:
            return "list", _NUMBER.sub(".*", op.module_path), op.inputs[1].shape
        if producer.kind not in ("view", "elementwise", "linear", "norm"):
            return None
        # The second layer of an expert reads the result of its first layer.
        if producer.kind == "linear" and producer.module_path.rpartition(".")[0] != expert:
            return None
    return None
