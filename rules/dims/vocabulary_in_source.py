"""The vocabulary of language models, as far as the source states its size."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.config.precisions import PRECISION_FACTS
from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule
from tclint.source.project.scripts import TRAINS
from tclint.source.questions.projections import size_of
from tclint.source.run.facts import distinct
from tclint.source.run.values import Event, Thing, modules_in

_PREFERRED_MULTIPLE = 64
_SMALLEST = 1000
"""The smallest vocabulary to report; the product with a smaller one is seldom worth a finding."""


class VocabMisalignedInSource(SourceRule):
    """A language model's vocabulary is not a multiple of what Tensor Cores run at full speed.

    What it does
    Finds, in training programs, a linear layer as wide as an embedding table of the same trained network,
    where the program states that size and it is no multiple of 8 (16 bits; 4 in TF32). Of a head that is tied
    to its table, ARC018 speaks.

    Why it costs
    The vocabulary is the widest dim of the model and contiguous in the logits: with an odd one, three of the
    largest products of the step run on slow kernels.

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
        for made, size in distinct(_heads(context)):
            if size < _SMALLEST or size % multiple == 0 or not context.is_shown(made):
                continue
            padded = -(-size // _PREFERRED_MULTIPLE) * _PREFERRED_MULTIPLE
            yield self.finding(
                context.at(made),
                f"This predicts one of {size} words, not a multiple of {multiple}: rows of the logits are "
                "unaligned, which slows the products with the vocabulary.",
                related=(context.also(made, "the layer is made here"),) if not context.lints(made) else (),
                evidence={"vocabulary": size, "multiple": multiple},
                effect=Effect(unknown="how large the rest of the model is is not known from the source"),
                fix=Fix(
                    f"Build embedding and head with {padded} words, the next multiple of "
                    f"{_PREFERRED_MULTIPLE}; the tokenizer never produces the added ids."
                ),
                identity=str(size),
            )


def _heads(context: SourceContext) -> Iterator[tuple[Event, int]]:
    """The events that make linear layers of trained networks as wide as an embedding table beside them, each
    with this width."""
    flow = context.flow
    for _, optimizer in context.optimizers.all:
        for module in context.optimizers.updated_by(optimizer):
            layers = [part for part in modules_in(module) if part.made is not None]
            tables = [part for part in layers if flow.kind(part) == "Embedding"]
            words = {size_of(flow.argument(table, "num_embeddings")) for table in tables} - {None}
            for layer in layers:
                width = (
                    size_of(flow.argument(layer, "out_features")) if flow.kind(layer) == "Linear" else None
                )
                if width is not None and width in words and layer.made is not None and not _is_tied(layer):
                    yield layer.made, width


def _is_tied(layer: Thing) -> bool:
    """Whether a layer has got its weight from elsewhere."""
    weight = layer.fields.get("weight")
    return isinstance(weight, Thing) and weight.fields.get("@parameter of") not in (None, layer)
