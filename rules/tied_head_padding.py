"""Language-model heads tied to an embedding whose size Tensor Cores cannot use whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.finding import Finding, Fix
from tclint.precisions import PRECISION_FACTS
from tclint.rule import Example, Rule, SourceRule
from tclint.source.library_models import arguments_of
from tclint.source.queries import has_star, is_test_path, keyword, positional
from tclint.source.tables import (
    Argument,
    Assignment,
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    dotted,
    parts_of,
)

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
_DEPTH = 6


class LmHeadNoPaddingTie(SourceRule):
    """A language model's head is tied to an embedding whose vocabulary is no multiple of 8.

    What it does
    Finds `self.head.weight = self.embedding.weight` (or the other way round) between an nn.Linear and an
    nn.Embedding of one class, where the size of the table is known - a literal, a constant, a default or
    what the file passes - and is at least 1000 and no multiple of 8 (16-bit; 4 in TF32).

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
    triggers = (".weight = self.",)
    requires = ("Embedding(", "Linear(")
    pattern = re.compile(rb"self\.[\w.]+\.weight = self\.[\w.]+\.weight")

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
                table = _tied_table(context, function, event)
                if table is None:
                    continue
                scope, call = table
                given = keyword(call, "num_embeddings", 0)
                size = _only_size(context, scope, given) if given is not None else None
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
    )


RULES: tuple[type[Rule], ...] = (LmHeadNoPaddingTie,)


def _tied_table(
    context: SourceContext, function: Function, event: Assignment
) -> tuple[Function, Call] | None:
    """The call that makes the embedding of a tie with a linear layer, and its scope."""
    target, source = event.targets[0], dotted(event.value)
    if not all(name.startswith("self.") and name.endswith(".weight") for name in (target, source)):
        return None
    made = {}
    for name in (target, source):
        found = _layer(context, function, name.removesuffix(".weight"))
        if found is None:
            return None
        for qualified in context.resolver.called(*found):
            made[qualified] = found
    return (
        made.get("torch.nn.Embedding") if made.keys() == {"torch.nn.Embedding", "torch.nn.Linear"} else None
    )


def _layer(context: SourceContext, function: Function, name: str) -> tuple[Function, Call] | None:
    """The one call that makes `self.layer`, or `self.parts.layer` of a dictionary of layers."""
    holder, _, last = name.rpartition(".")
    nested = holder != "self"
    definitions, _ = context.resolver.definitions(function, holder if nested else name)
    if len(definitions) != 1 or definitions[0][1].operator or definitions[0][1].unpacked:
        return None
    scope, item = definitions[0]
    found = _keyed(item.value, last) if nested else item.value
    return (scope, found) if isinstance(found, Call) else None


def _keyed(value: Expression, key: str) -> Expression | None:
    """What a dictionary display or `dict(...)` somewhere in an expression holds under a key."""
    if isinstance(value, Collection) and value.kind == "dict":
        for known, item in zip(value.keys, value.items, strict=True):
            if known == Literal(key):
                return item
    if isinstance(value, Call):
        for argument in value.arguments:
            if isinstance(argument, Argument) and argument.keyword == key:
                return argument.value
    for part in parts_of(value):
        found = _keyed(part, key)
        if found is not None:
            return found
    return None


def _only_size(context: SourceContext, scope: Function, value: Expression) -> int | None:
    sizes = _sizes(context, scope, value, _DEPTH)
    only = sizes.pop() if len(sizes) == 1 else None
    return only if isinstance(only, int) and not isinstance(only, bool) else None


def _sizes(context: SourceContext, scope: Function, value: Expression, depth: int) -> set[object]:
    """Every size that the project shows an expression to have; None among them for one it does not."""
    if depth <= 0:
        return {None}
    resolver = context.resolver
    if isinstance(value, Name):
        root, _, last = value.dotted.rpartition(".")
        owner = resolver.owner(scope, root or last)
        parameter = next((p for p in owner.parameters if p.name == (root or last)), None) if owner else None
        if owner is not None and parameter is not None and root != "self":
            if root:
                return _field_sizes(context, owner, parameter.annotation, last)
            return _passed_sizes(context, owner, last, parameter.default, depth)
        if root == "self":
            found = resolver.definitions(scope, value.dotted)[0]
            if len(found) == 1 and not found[0][1].operator and not found[0][1].unpacked:
                return _sizes(context, found[0][0], found[0][1].value, depth - 1)
            return {None}
    possible = resolver.evaluate(scope, value)
    if possible.certain or (len(possible.values) == 1 and isinstance(value, Name) and "." in value.dotted):
        return {*possible.values, *_overrides(context, dotted(value))}
    return {None}


def _passed_sizes(
    context: SourceContext, owner: Function, name: str, default: Expression | None, depth: int
) -> set[object]:
    """What the calls of a function or class pass for a parameter; its default where nothing calls it."""
    called = context.tables.functions[owner.parent] if owner.name == "__init__" else owner
    if any(context.neighbours.importing(called.name)):
        return {None}
    calls = context.program.callers.get(called.index, ())
    derived = any(
        dotted(base).rpartition(".")[2] == called.name
        for other in context.tables.functions
        for base in other.bases
    )
    if derived or any(has_star(event.call) for _, event in calls):
        return {None}
    passed = list(arguments_of(context, owner, name))
    sizes: set[object] = set()
    for argument, caller in passed:
        sizes |= _sizes(context, caller, argument, depth - 1)
    if len(passed) < len(calls) or not calls:
        if not passed and _overrides(context, name):
            return {None}  # something passes it, though to what is not known
        sizes |= _sizes(context, owner, default, depth - 1) if default is not None else {None}
    return sizes


def _field_sizes(
    context: SourceContext, owner: Function, annotation: Expression | None, field: str
) -> set[object]:
    """The default of a field of a configuration class of the file, with what the file makes of it."""
    named = dotted(annotation) if annotation is not None else ""
    classes = [item for item in context.resolver.local_functions(owner, Name(named)) if item.kind == "class"]
    if len(classes) != 1 or any(context.neighbours.importing(classes[0].name)):
        return {None}
    made = context.program.callers.get(classes[0].index, ())
    if any(positional(event.call) or has_star(event.call) for _, event in made):
        return {None}
    possible = context.resolver.evaluate(owner, Name(f"{named}.{field}"))
    return (
        {*possible.values, *_overrides(context, f"config.{field}")} if len(possible.values) == 1 else {None}
    )


def _overrides(context: SourceContext, name: str) -> set[object]:
    """Other values that the file gives a field, as keyword arguments or by assigning it."""
    holder, _, field = name.rpartition(".")
    if not field:
        return set()
    sizes: set[object] = set()
    for function in context.tables.functions:
        for event in function.events:
            given: list[Expression] = []
            if isinstance(event, CallEvent):
                given = [a.value for a in event.call.arguments if a.keyword == field]
                if any(a.star == "**" for a in event.call.arguments):
                    sizes.add(None)
            elif isinstance(event, Assignment) and any(t.endswith(f".{field}") for t in event.targets):
                stored = event.targets[0].startswith("self.") and dotted(event.value) == field
                given = [] if stored else [event.value]  # `self.vocab_size = vocab_size` keeps a parameter
            for value in given:
                possible = context.resolver.evaluate(function, value)
                root, _, last = dotted(value).rpartition(".")
                handed_on = last == field and root.rpartition(".")[2] in (holder, "config", "cfg", "conf")
                if not handed_on:
                    sizes |= set(possible.values) if possible.certain else {None}
    return sizes
