"""The vocabulary of language models, as far as the source states its size."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import PRECISION_FACTS, Effect, Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import TRAINS, modules_in

_PREFERRED_MULTIPLE = 64
_SMALLEST = 1000
"""The smallest vocabulary to report; the product with a smaller one is seldom worth a finding."""


class VocabMisalignedInSource(SourceRule):
    """A language model's vocabulary is not a multiple of what Tensor Cores run at full speed.

    What it does
    Finds `self.head.weight = self.words.weight` (or the other way round) between an nn.Linear and an
    nn.Embedding, and in training programs a linear layer as wide as an embedding table of the same trained
    network, where the size of the table is known - a literal, a constant, a default, a field of a
    configuration or what the program passes - and is no multiple of 8 (16 bits; 4 in TF32).

    Why it costs
    The vocabulary is the widest dim of the model and contiguous in the logits: with an odd one, three of the
    largest products of the step run on slow kernels. Of tied layers, padding the nn.Linear alone has no
    effect, because the tie replaces its weight.

    Example
        self.words = nn.Embedding(50257, 768)
        self.head = nn.Linear(768, 50257, bias=False)

    Use instead
        self.words = nn.Embedding(50304, 768)
        self.head = nn.Linear(768, 50304, bias=False)

    When it does not apply
    Vocabularies of fewer than 1000 words; programs that load a published checkpoint, which fixes the size.
    """

    code = "DIM003"
    name = "vocab-misaligned"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: a vocabulary in multiples of 8",
        "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489): a vocabulary in "
        "multiples of 64",
    )
    priced_as = ("DIM003",)
    triggers = (".step(", ".backward(", ".fit(", "Linear(")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        multiple = PRECISION_FACTS[context.settings.precision].multiple
        # A checkpoint from elsewhere fixes the vocabulary.
        if multiple is None or context.record.of("published"):
            return
        tied = list(_ties(context))
        sizes = {size for _, _, size in tied}
        heads = ((event, event, size) for event, size in distinct(_heads(context)) if size not in sizes)
        for event, made, size in (*tied, *heads):
            if size < _SMALLEST or size % multiple == 0 or not context.is_shown(event):
                continue
            padded = -(-size // _PREFERRED_MULTIPLE) * _PREFERRED_MULTIPLE
            is_tie = event is not made
            what = f"The head is tied to an embedding of {size}" if is_tie else f"This predicts one of {size}"
            note = "the embedding that sets the size" if is_tie else "the layer is made here"
            tie = {"tie": context.code(event)} if is_tie else {}
            yield self.finding(
                context.at(event),
                f"{what} words, not a multiple of {multiple}: rows of the logits are unaligned, which slows "
                "the products with the vocabulary.",
                related=(context.also(made, note),) if is_tie or not context.lints(made) else (),
                evidence={"vocabulary": size, "multiple": multiple, **tie},
                effect=Effect(unknown="how large the rest of the model is is not known from the source"),
                fix=Fix(
                    f"Build embedding and head with {padded} words, the next multiple of "
                    f"{_PREFERRED_MULTIPLE}; the tokenizer never produces the added ids."
                ),
                identity=f"{event.place.function.qualified_name}:{tie['tie']}" if is_tie else str(size),
            )


def _ties(context: SourceContext) -> Iterator[tuple[Event, Event, int]]:
    """The events that tie a linear layer to an embedding, whichever gets the other's weight: each with
    the one that makes the embedding, and its size."""
    flow = context.flow
    for event in distinct(context.record.of("set")):
        if event.name != ".weight":
            continue
        given = [
            owner
            for weight in flow.facts.things(event.arguments["value"])
            for owner in flow.facts.things(weight.fields.get("@parameter of"))
        ]
        both = {flow.kind(module): module for module in (*flow.facts.things(event.subject), *given)}
        if both.keys() == {"Embedding", "Linear"}:
            made = both["Embedding"].made
            size = flow.size(both["Embedding"], "num_embeddings")
            if made is not None and size is not None:
                yield event, made, size


def _heads(context: SourceContext) -> Iterator[tuple[Event, int]]:
    """The events that make linear layers of trained networks as wide as an embedding table beside them, each
    with this width."""
    flow = context.flow
    for _, optimizer in context.optimizers.all:
        for module in context.optimizers.updated_by(optimizer):
            layers = [part for part in modules_in(module) if part.made is not None]
            tables = [part for part in layers if flow.kind(part) == "Embedding"]
            words = {flow.size(table, "num_embeddings") for table in tables} - {None}
            for layer in layers:
                width = flow.size(layer, "out_features") if flow.kind(layer) == "Linear" else None
                if width is not None and width in words and layer.made is not None:
                    yield layer.made, width
