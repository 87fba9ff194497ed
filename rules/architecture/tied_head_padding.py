"""Language-model heads tied to an embedding whose size Tensor Cores cannot use whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.config.precisions import PRECISION_FACTS
from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.layers.tied_tables import only_size, tied_table
from tclint.source.names.queries import is_test_path, keyword
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import Assignment, dotted

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

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
    """A language model's head is tied to an embedding whose vocabulary is no multiple of 8.

    What it does
    Finds `self.head.weight = self.embedding.weight` (or the other way round) between an nn.Linear and an
    nn.Embedding of one class, where the size of the table is known - a literal, a constant, a default, the
    field of a configuration or what the file passes - and is at least 1000 and no multiple of 8 (16-bit; 4
    in TF32).

    Why it costs
    An embedding is only looked up, and any size of it will do. Tied to the head, it also decides the widest
    matrix product of the model: the rows of the logits and of their gradient then start at unaligned
    addresses, and padding the nn.Linear alone has no effect, for the tie replaces its weight.

    Example
        self.wte = nn.Embedding(50257, 768)
        self.lm_head = nn.Linear(768, 50257, bias=False)
        self.lm_head.weight = self.wte.weight

    Use instead
        self.wte = nn.Embedding(50304, 768)
        self.lm_head = nn.Linear(768, 50304, bias=False)
        self.lm_head.weight = self.wte.weight

    When it does not apply
    Sizes that are known at run time only; a vocabulary that is padded elsewhere; pretrained checkpoints,
    which fix it (resize the embedding after loading). Traced, DIM003 (vocab-misaligned) prices it.

    References
    NVIDIA, Train With Mixed Precision, Optimizing for Tensor Cores: a vocabulary in multiples of 8.
    Anthony et al., The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489): a
    vocabulary in multiples of 64.
    """

    code = "ARC018"
    name = "lm-head-no-padding-tie"
    since = "0.1.0"
    level = "warning"
    confidence = "medium"
    sources = (
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores",
        "The Case for Co-Designing Model Architectures with Hardware (arXiv 2401.14489), vocabulary",
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
        for function in context.tables.functions:
            for event in function.events:
                if not isinstance(event, Assignment) or event.operator or len(event.targets) != 1:
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
                    context.location(event.site),
                    f"The head is tied to an embedding of {size} words, no multiple of {multiple}: "
                    "rows of the logits are unaligned, which slows the products with the vocabulary.",
                    related=(context.related(call.site, "the embedding that sets the size"),),
                    evidence={"vocabulary": size, "tie": written, "multiple": multiple},
                    fix=Fix(
                        f"Build embedding and head with {padded} words, the next multiple of "
                        f"{_PREFERRED_MULTIPLE}; the tokenizer never produces the added ids."
                    ),
                    identity=f"{function.qualified_name}:{written}",
                )

    valid = (
        Example(
            source="""\
from torch import nn

class Model(nn.Module):
    def __init__(self, vocab_size, width=768):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.head.weight = self.wte.weight
""",
            note="known at run time only",
        ),
        Example(
            source="""\
from dataclasses import dataclass
from torch import nn

@dataclass
class Config:
    vocab_size: int = 50257
    width: int = 768

class Model(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.wte.weight = self.head.weight

model = Model(Config(vocab_size=50304))
""",
            note="the default is not what the program uses",
        ),
        Example(
            source="""\
from dataclasses import dataclass
from torch import nn

@dataclass
class GPTConfig:
    vocab_size: int = 50257
    n_embd: int = 768

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

model = GPT(GPTConfig(vocab_size=50304))
""",
            note="nor that of the configuration",
        ),
        Example(
            source="""\
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(50257, 768)
        self.head = nn.Linear(768, 50257, bias=False)
        self.head.weight = self.wte.weight

    @classmethod
    def from_pretrained(cls, name):
        ...
""",
            note="a checkpoint fixes the vocabulary",
        ),
        Example(
            source="""\
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1001, 1001)
        self.second = nn.Linear(1001, 1001)
        self.second.weight = self.first.weight
        self.wte = nn.Embedding(50304, 768)
        self.head = nn.Linear(768, 50304)
        self.head.weight = self.wte.weight
""",
            note="no embedding; a padded one",
        ),
        Example(
            source="""\
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(33708, 1024)
        self.head = nn.Linear(1024, 33708)
        self.head.weight = self.words.weight
""",
            note="four elements of TF32 are 16 bytes",
            settings={"precision": "tf32"},
        ),
    )
    invalid = (
        Example(
            source="""\
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(50257, 768)
        self.lm_head = nn.Linear(768, 50257, bias=False)
        self.lm_head.weight = self.wte.weight
""",
            note="GPT-2's vocabulary",
        ),
        Example(
            source="""\
from dataclasses import dataclass
from torch import nn

@dataclass
class GPTConfig:
    vocab_size: int = 50257
    n_embd: int = 768

class GPT(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(config.vocab_size, config.n_embd)))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

model = GPT(GPTConfig())
""",
            note="the default of a configuration, in a dictionary of layers",
        ),
        Example(
            source="""\
import torch.nn as nn

VOCABULARY = 30522

class Encoder(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.decoder = nn.Linear(width, vocabulary)
        self.decoder.weight = self.words.weight

model = Encoder(VOCABULARY, 1024)
""",
            note="a constant that the file passes",
        ),
        Example(
            source="""\
from torch import nn

class Config:
    def __init__(self, vocab_size=50257, n_embd=768):
        self.vocab_size = vocab_size
        self.n_embd = n_embd

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        shared = self.wte.weight
        self.lm_head.weight = shared

model = GPT(Config())
""",
            note="a configuration that keeps its parameters, a weight that gets a name first",
        ),
    )


RULES: tuple[type[Rule], ...] = (LmHeadNoPaddingTie,)
