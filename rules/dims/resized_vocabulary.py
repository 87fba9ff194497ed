"""Vocabularies that grow by a few tokens after loading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from tclint.plugin import (
    Change,
    Constant,
    Effect,
    Event,
    Finding,
    Fix,
    SourceContext,
    SourceRule,
    Thing,
    distinct,
)
from tclint.plugin.source import NONE, Value, constant_of

_MULTIPLE = 64
_MOST_ADDED = 1024
"""A model whose vocabulary differs by more is not the one that the program resizes."""
_METHOD = ".resize_token_embeddings"
_WITH_HEAD = re.compile(
    r"For(CausalLM|ConditionalGeneration|Seq2SeqLM|MaskedLM|Vision2Seq|PreTraining)|LMHead"
)
"""Matches names of transformers classes that have a head over the vocabulary."""
_ADDS = (".add_tokens", ".add_special_tokens")


class VocabularyNotPadded(SourceRule):
    """A vocabulary resized to the length of a tokenizer, whatever that is.

    What it does
    Finds, in programs that train, `resize_token_embeddings(len(tokenizer))` without `pad_to_multiple_of`,
    TRL's `setup_chat_format` without `resize_to_multiple_of`, and `tokens` in axolotl's configuration files
    without `resize_token_embeddings_to_32x` where the base model's vocabulary is known. For well-known
    tokenizers to which the program adds a countable number of tokens, it says how many words that makes.

    Why it costs
    Published models have vocabularies such as 128256 or 32000, multiples of 64. One more token, often for
    padding, makes 128257 of it: the widest dim of the model, contiguous in the logits and their gradient, is
    then odd, and the three products with the vocabulary run on slow kernels. transformers warns of it when
    the program runs.

    Example
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
        model.resize_token_embeddings(len(tokenizer))

    Use instead
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
        model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)

    When it does not apply
    Sizes that are known to be multiples of 64; encoders of texts, which predict no words; programs that do
    not train, whose checkpoints others must load. For padding, a token that the vocabulary has already (its
    end of text) needs no resizing at all.
    """

    code = "DIM017"
    name = "vocabulary-not-padded"
    level = "warning"
    confidence = "high"
    sources = (
        "transformers PreTrainedModel.resize_token_embeddings: warns of Tensor Cores without "
        "pad_to_multiple_of",
        "NVIDIA Train With Mixed Precision, Optimizing for Tensor Cores: a vocabulary in multiples of 8",
    )
    priced_as = ("DIM003",)
    triggers = ("resize_token_embeddings", "setup_chat_format")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if not context.record.of("backward"):
            return  # a script that converts checkpoints must write them as others read them
        for event in distinct(context.record.of("resize", "call")):
            if event.name != _METHOD or not context.concerns(event):
                continue
            if not _predicts_words(context, event):
                context.skip(event, "resizes a model that is not known to predict words")
                continue
            given = event.arguments
            if given.get("pad_to_multiple_of", NONE) != NONE or "**" in given:
                continue
            asked = given.get("new_num_tokens", given.get("0"))
            size = _size(context, asked)
            if asked is None or asked == NONE or (size is not None and size % _MULTIPLE == 0):
                continue
            # axolotl keeps a vocabulary that already is larger than the tokenizer's, as Qwen's is.
            if size is None and (context.run.is_configuration or not _is_length(asked)):
                context.skip(event, "how large it makes the vocabulary is not known")
                continue
            model = next(context.facts.things(event.subject), None)
            argument = "resize_to_multiple_of" if event.place.file.is_library else "pad_to_multiple_of"
            advice = f"Pass {argument}={_MULTIPLE}."
            if context.run.is_configuration:
                advice = "Set resize_token_embeddings_to_32x: true."
            becomes = (
                f"{size} words, not" if size is not None else "as many words as the tokenizer has, rarely"
            )
            yield self.finding(
                context.at(event, model, "tokens"),
                f"The vocabulary becomes {becomes} a multiple of {_MULTIPLE}: the logits have unaligned "
                "rows, which slows the products with the vocabulary.",
                evidence={"vocabulary": size, "argument": argument, "multiple": _MULTIPLE},
                effect=Effect(unknown="the model's shapes are not known from the source"),
                fix=Fix(advice),
                identity=f"{event.place.function.qualified_name}:{argument}",
            )

    def change(self, finding: Finding, context: Any) -> Any:
        size = finding.evidence["vocabulary"]
        groups = {
            head.group
            for head in context.vocabulary_heads
            if size is not None and head.group is not None and abs(head.size - size) < _MOST_ADDED
        }
        if not groups:
            return None
        padded = -(-size // _MULTIPLE) * _MULTIPLE
        return Change(
            sizes=tuple((group, padded) for group in groups),
            sizes_before=tuple((group, size) for group in groups),
        )


def _predicts_words(context: SourceContext, event: Event) -> bool:
    """Whether a model has a head over its vocabulary, judged by its class. If the class is unknown, it has
    one if some model of the program has one or no model is known."""
    own = [thing.name for thing in context.facts.kinds(event.subject, "module") if thing.name]
    others = [
        thing.name
        for made in context.record.of("make")
        for thing in context.facts.kinds(made.result, "module")
    ]
    known = [name for name in own or others if name.startswith("transformers.")]
    return not known or any(_WITH_HEAD.search(name) for name in known)


def _is_length(value: Value) -> bool:
    return isinstance(value, Thing) and value.operation is not None and value.operation[0] == "len"


def _size(context: SourceContext, value: Value | None) -> int | None:
    """The size of the vocabulary: a number, or that of a known tokenizer with the tokens added to it."""
    number = constant_of(value)
    if type(number) is int:
        return number
    if value is None or not _is_length(value):
        return None
    assert isinstance(value, Thing)
    assert value.operation is not None
    tokenizer = next(context.facts.things(value.operation[1][0]), None)
    made = tokenizer.made if tokenizer is not None else None
    name = constant_of(made.first) if made is not None and made.name.endswith(".from_pretrained") else None
    sizes = context.facts.library.vocabularies
    base = next((size for pattern, size in sizes.items() if fnmatchcase(str(name), pattern)), None)
    if base is None:
        return None
    counts = [_added(context, event) for event in context.record.on(tokenizer, "call") if event.name in _ADDS]
    return base + sum(count or 0 for count in counts) if None not in counts else None


def _added(context: SourceContext, event: Event) -> int | None:
    """The number of tokens that a call adds; None if they cannot be counted."""
    given = event.first
    count = 0
    for thing in context.facts.things(given):
        for key, item in thing.fields.items():
            if key in ("[*]", "[~]"):
                return None
            if isinstance(key, tuple):
                inner = next(context.facts.things(item), None)
                if inner is not None:
                    length = constant_of(inner.fields.get("[]"))
                    if not isinstance(length, int):
                        return None
                    count += length
                else:
                    count += 1
        return count
    return 1 if isinstance(given, Constant) else None
