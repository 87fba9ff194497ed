"""The vocabulary of language models: the widest matrix product they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tclint.plugin import PRECISION_FACTS, Finding, Fix, GraphContext, GraphRule, Site
from tclint.plugin.graph import (
    Padding,
    VocabularyHead,
    annotate_if_compile_fixes,
    best_padding,
    efficient_multiple,
    gain_phrase,
    indices_of,
    is_misaligned,
    related_sites,
    round_up,
    rounded,
    share_phrase,
)


class VocabMisaligned(GraphRule):
    """A language model's vocabulary is not a multiple of what Tensor Cores run at full speed.

    What it does
    Finds the product of the hidden state with the vocabulary - a linear layer as wide as one of the
    model's embedding tables, tied to it or not - and prices a padded vocabulary for head and embedding,
    forward and backward. Multiples of 64 are preferred where they cost no more than the smallest one.

    Why it costs
    The vocabulary is the widest dim of the model and contiguous in the logits. GPT-2's 50257 is odd:
    every row of the logits and of their gradient starts at an unaligned address, so three of the largest
    products of the step run on slow kernels.

    Example
        self.wte = nn.Embedding(50257, 768)
        self.lm_head = nn.Linear(768, 50257, bias=False)

    Use instead
        self.wte = nn.Embedding(50304, 768)
        self.lm_head = nn.Linear(768, 50304, bias=False)

    When it does not apply
    An embedding that is only looked up needs no padding. A pretrained checkpoint fixes the vocabulary:
    resize its embedding after loading (`model.resize_token_embeddings(n, pad_to_multiple_of=64)` in
    Transformers). The tokenizer never produces the added ids, so the loss teaches the model to avoid
    them; slice or mask them when sampling.
    """

    code = "DIM003"
    name = "vocab-misaligned"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: a vocabulary in multiples of 8",
        "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489): a vocabulary in "
        "multiples of 64",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        yield from annotate_if_compile_fixes(context, self._check)

    def _check(self, context: GraphContext) -> Iterator[Finding]:
        by_vocabulary: dict[int, list[VocabularyHead]] = {}
        for head in context.vocabulary_heads:
            if is_misaligned(head.size, context.settings.precision):
                by_vocabulary.setdefault(head.size, []).append(head)
        # However small its share, a model's vocabulary is worth a line in the summary.
        for heads in by_vocabulary.values():
            yield self._finding(context, heads)

    def _finding(self, context: GraphContext, heads: list[VocabularyHead]) -> Finding:
        head = heads[0]
        concerned = indices_of(each.op for each in heads)
        multiple = efficient_multiple(context.settings.precision)
        location = context.location(head.op)
        shares = context.share_percent(concerned)
        groups = {each.group.id: each.group for each in heads if each.group is not None}
        embedding_groups = [
            context.dims.group_of_input(op.index, op.input_names.index("weight"), 0) for op in head.embeddings
        ]
        groups |= {group.id: group for group in embedding_groups if group is not None}
        sites: list[Site | None] = [op.construct_site for op in head.embeddings]
        sites += [each.op.construct_site for each in heads]
        sites += [site for group in groups.values() for site in group.sites]
        outcome = best_padding(context, tuple(groups.values()), concerned)
        units = PRECISION_FACTS[context.settings.precision].unit
        message = (
            f"The vocabulary of {head.size} is not a multiple of {multiple}, which {units} Tensor Cores need "
            f"for full speed: the product with it takes {share_phrase(shares)}"
        )
        evidence: dict[str, Any] = {
            "vocabulary": head.size,
            "multiple": multiple,
            "tied": head.tied,
            "share_percent": rounded(shares),
        }
        related = (
            *context.related(head.op),
            *related_sites(sites, location, "this layer has the same vocabulary, which changes with it"),
        )
        if not isinstance(outcome, Padding):
            return self.finding(
                location,
                f"{message}; what padding gains is unknown.",
                effect=outcome,
                evidence=evidence | {"gain_is_at_most_percent": rounded(shares)},
                fix=Fix(f"Pad the vocabulary to a multiple of {multiple}, or better of 64."),
                related=related,
                level="info",
            )
        # Logits of a model that the library builds stay padded: its loss takes them so.
        gains = gain_phrase(outcome.effect) if _is_of_transformers(head) else outcome.gain_phrase()
        return self.finding(
            location,
            f"{message}; padding {outcome.phrase()} {gains}.",
            effect=outcome.effect,
            evidence=evidence | outcome.evidence(),
            change=outcome.change,
            fix=Fix(_advice(head, outcome.sizes[-1][1])),
            related=related,
        )


def _advice(head: VocabularyHead, padded: int) -> str:
    unused = "the tokenizer never uses the added ones, mask their logits when sampling"
    if _is_of_transformers(head):
        multiple = next(m for m in (2, 4, 8, 16, 32, 64, 128) if round_up(head.size, m) == padded)
        return (
            f"Call model.resize_token_embeddings({head.size}, pad_to_multiple_of={multiple}) after loading, "
            f"which keeps pretrained rows and gives {padded} entries; {unused}."
        )
    what = "the embedding that the head shares" if head.tied else "head and embedding"
    return f"Build {what} with {padded} entries (copy pretrained rows into the first {head.size}); {unused}."


def _is_of_transformers(head: VocabularyHead) -> bool:
    """Whether the library builds the layer, so that no line of the user contains the size."""
    op = head.op
    sites = (op.construct_library_site, op.construct_site)
    return any(site is not None and "/transformers/models/" in site.path.replace("\\", "/") for site in sites)
