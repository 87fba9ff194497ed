"""Language-model heads tied to an embedding whose size Tensor Cores cannot use whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.config.precisions import PRECISION_FACTS
from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.project.scripts import TRAINS
from tclint.source.questions.projections import size_of
from tclint.source.run.facts import distinct
from tclint.source.run.values import Event, Thing

_PREFERRED_MULTIPLE = 64
_SMALLEST = 1000
"""The smallest vocabulary to report; smaller tables are seldom worth a finding."""


class LmHeadNoPaddingTie(SourceRule):
    """A language model's head is tied to an embedding whose vocabulary is not a multiple of 8.

    What it does
    Finds `self.head.weight = self.embedding.weight` (or the other way round) between an nn.Linear and an
    nn.Embedding of one class, where the size of the table is known - a literal, a constant, a default, a
    field of a configuration or what the file passes - and is at least 1000 and not a multiple of 8
    (16-bit; 4 in TF32).

    Why it costs
    An embedding is only looked up, and any size will do. Tied to the head, it also decides the widest
    matrix product of the model: the rows of the logits and of their gradient then start at unaligned
    addresses. Padding the nn.Linear alone has no effect, because the tie replaces its weight.

    Example
        self.wte = nn.Embedding(50257, 768)
        self.lm_head = nn.Linear(768, 50257, bias=False)
        self.lm_head.weight = self.wte.weight

    Use instead
        self.wte = nn.Embedding(50304, 768)
        self.lm_head = nn.Linear(768, 50304, bias=False)
        self.lm_head.weight = self.wte.weight

    When it does not apply
    Sizes that are known only at run time; a vocabulary that is padded elsewhere; pretrained checkpoints,
    which fix it (resize the embedding after loading). For a traced model, DIM003 (vocab-misaligned)
    prices it.
    """

    code = "ARC018"
    name = "lm-head-no-padding-tie"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: a vocabulary in multiples of 8",
        "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489): a vocabulary in "
        "multiples of 64",
    )
    priced_as = ("DIM003",)
    triggers = (".weight = ", ".weight=")
    program = TRAINS
    requires = ("Embedding(", "Linear(")
    pattern = re.compile(
        rb"self\.[\w.]+\.weight *= *(?:self\.[\w.]+\.weight|\w+[ \r]*(?:#.*)?$)", re.MULTILINE
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        multiple = PRECISION_FACTS[context.settings.precision].multiple
        # A checkpoint from elsewhere fixes the vocabulary.
        if multiple is None or context.record.of("published"):
            return
        for event in distinct(context.record.of("set")):
            table = _tied_table(context, event) if event.name == ".weight" else None
            size = size_of(context.flow.argument(table, "num_embeddings")) if table is not None else None
            if size is None or size < _SMALLEST or size % multiple == 0 or not context.concerns(event):
                continue
            padded = -(-size // _PREFERRED_MULTIPLE) * _PREFERRED_MULTIPLE
            written, made = context.code(event), table.made if table is not None else None
            yield self.finding(
                context.at(event),
                f"The head is tied to an embedding of {size} words, not a multiple of {multiple}: "
                "rows of the logits are unaligned, which slows the products with the vocabulary.",
                related=(context.also(made, "the embedding that sets the size"),) if made else (),
                evidence={"vocabulary": size, "tie": written, "multiple": multiple},
                fix=Fix(
                    f"Build embedding and head with {padded} words, the next multiple of "
                    f"{_PREFERRED_MULTIPLE}; the tokenizer never produces the added ids."
                ),
                identity=f"{event.place.function.qualified_name}:{written}",
            )


def _tied_table(context: SourceContext, event: Event) -> Thing | None:
    """The embedding of a tie with a linear layer, whichever of them gets the other's weight."""
    flow = context.flow
    given = [
        owner
        for weight in flow.facts.things(event.arguments["value"])
        for owner in flow.facts.things(weight.fields.get("@parameter of"))
    ]
    both = {flow.kind(module): module for module in (*flow.facts.things(event.subject), *given)}
    return both["Embedding"] if both.keys() == {"Embedding", "Linear"} else None
