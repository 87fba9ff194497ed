"""Language-model heads tied to an embedding whose size Tensor Cores cannot use whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.config.precisions import PRECISION_FACTS
from tclint.plugin import Finding, Fix, SourceContext, SourceRule, dotted
from tclint.source.layers.tied_embeddings import only_size, tied_table
from tclint.source.names.queries import is_test_path, keyword

_PREFERRED_MULTIPLE = 64
_SMALLEST = 1000
"""Words; smaller tables are seldom worth a note."""
_PADS = re.compile(
    r"pad(ded|ding)?_?(to_)?(multiple|vocab)|vocab(_size)?_pad|multiple_of|next_multiple|divisible_by|round_?up"
    r"|from_pretrained|load_state_dict_from_url|hf_hub|resize_token_embeddings|convert_.*checkpoint"
)
"""Identifiers, in lower case, of programs that pad a vocabulary or take one from a checkpoint."""
_ELSEWHERE = (
    "padding_multiple",
    "pad_to_multiple_of",
    "pad_vocab",
    "padded_vocab",
    "next_multiple_of",
    "resize_token_embeddings",
    "from_pretrained",
    "divisible_by",
)


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
    requires = ("Embedding(", "Linear(")
    pattern = re.compile(
        rb"self\.[\w.]+\.weight *= *(?:self\.[\w.]+\.weight|\w+[ \r]*(?:#.*)?$)", re.MULTILINE
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path) or any(_PADS.search(n.lower()) for n in context.tables.identifiers):
            return
        multiple = PRECISION_FACTS[context.settings.precision].multiple
        if multiple is None:
            return
        for function, event in context.tables.assignments:
            if event.operator or len(event.targets) != 1:
                continue
            table = tied_table(context, function, event)
            if table is None:
                continue
            scope, call = table
            given = keyword(call, "num_embeddings", 0)
            size = only_size(context, scope, given) if given is not None else None
            if size is None or size < _SMALLEST or size % multiple == 0:
                continue
            if context.neighbours.mention(_ELSEWHERE):
                return
            padded = -(-size // _PREFERRED_MULTIPLE) * _PREFERRED_MULTIPLE
            written = f"{event.targets[0]} = {dotted(event.value)}"
            yield self.finding(
                context.location(event.node_id),
                f"The head is tied to an embedding of {size} words, not a multiple of {multiple}: "
                "rows of the logits are unaligned, which slows the products with the vocabulary.",
                related=(context.related(call.node_id, "the embedding that sets the size"),),
                evidence={"vocabulary": size, "tie": written, "multiple": multiple},
                fix=Fix(
                    f"Build embedding and head with {padded} words, the next multiple of "
                    f"{_PREFERRED_MULTIPLE}; the tokenizer never produces the added ids."
                ),
                identity=f"{function.qualified_name}:{written}",
            )
