"""Rules on sequences that are padded: to the longest one of a batch, or all to one limit."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Constant, Effect, Event, Finding, Fix, SourceContext, SourceRule, Symbol, distinct
from tclint.plugin.source import TRUE, Defaults, constant_of, modules_in

_COLLATORS = tuple(
    f"transformers.{name}"
    for name in (
        "DataCollatorWithPadding",
        "DataCollatorForSeq2Seq",
        "DataCollatorForTokenClassification",
        "DataCollatorForLanguageModeling",
    )
)
_PADS = "torch.nn.utils.rnn.pad_sequence"
_PACKS = ("torch.nn.utils.rnn.pack_padded_sequence", "torch.nn.utils.rnn.pad_packed_sequence")
_MAX_LENGTH = Constant("max_length")
_SHORT = {"torch.float16": "fp16", "torch.bfloat16": "bf16"}


class SequencePad(SourceRule):
    """Batches padded to the longest sequence under mixed precision.

    What it does
    Finds Hugging Face padding collators without `pad_to_multiple_of`, and `pad_sequence`, in files that train
    with fp16 or bf16: by the arguments of a trainer, or by the dtype that the model is loaded in. Where
    sequences are packed, or cut from one stream, the length that they all have.

    Why it costs
    Every batch is as long as its longest sequence, so batch times length, the M of every linear layer,
    and the sides of the attention matrices are rarely multiples of 8.

    Example
        collator = DataCollatorWithPadding(tokenizer)

    Use instead
        collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)

    When it does not apply
    Sequences of one length (padding="max_length", packing, grouped texts); variable-length attention
    kernels; float32 training.
    """

    code = "DIM008"
    name = "sequence-pad"
    level = "info"
    confidence = "high"
    sources = (
        "NVIDIA Train With Mixed Precision, Satisfying Tensor Core Shape Constraints: sequences in "
        "multiples of 8",
    )
    triggers = ("DataCollator", "pad_sequence", "packing")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        yield from self._lengths(context)
        precision = _half_training(context)
        if not precision or _fixed_length(context):
            return
        seen = set[tuple[object, int]]()
        for event in distinct(context.record.of("call", "op", "make", "pad")):
            function, last = event.place.function, event.name.rpartition(".")[2]
            if event.name not in (*_COLLATORS, _PADS) or not context.concerns(event):
                continue
            if event.subject is not None:
                continue  # the padding of a collator that is made elsewhere
            if {"pad_to_multiple_of", "**"} & event.arguments.keys():
                continue
            fix = Fix("Pass pad_to_multiple_of=8 (64 for A100 and newer).")
            if event.name == _PADS:
                if (event.place.file, function.index) in seen:
                    continue
                seen.add((event.place.file, function.index))
                fix = Fix("Pad the result further, to a multiple of 8 (64 for A100 and newer).")
            yield self.finding(
                context.at(event),
                f"{last} pads to the longest sequence of each batch, rarely a multiple of 8, in {precision} "
                "training.",
                evidence={"collator": last, "pad_to_multiple_of": None, "precision": precision},
                fix=fix,
                identity=f"{function.qualified_name}:{last}",
            )

    def _lengths(self, context: SourceContext) -> Iterator[Finding]:
        """Findings on the lengths of packed sequences, or of sequences cut from one stream, in all
        batches."""
        for loader in context.batches.all:
            length, made = constant_of(loader.fields.get("@length")), loader.made
            if made is None or type(length) is not int or length < 8 or length % 8 == 0:
                continue
            if loader.fields.get("@packed", TRUE) != TRUE or not context.concerns(made):
                continue
            yield self.finding(
                context.at(made, loader, "@length"),
                f"Every sequence is {length} tokens long, not a multiple of 8.",
                evidence={"length": length, "multiple": 8},
                fix=Fix(f"Use {length - length % 8} or {length - length % 8 + 8}; multiples of 64 are best."),
                identity=str(length),
            )


class PaddedToLimit(SourceRule):
    """Texts are padded to one fixed length, however short they are.

    What it does
    Finds tokenizers that get `padding="max_length"` for the batches that a language model is trained on.

    Why it costs
    All layers compute on the padding as on words, and attention on its square. Texts of a few dozen words,
    padded to 512, are mostly padding.

    Example
        tokens = tokenizer(batch["text"], truncation=True, padding="max_length", max_length=512)

    Use instead
        tokens = tokenizer(batch["text"], truncation=True, max_length=512)
        collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)

    When it does not apply
    Texts that are as long as the limit; programs that compile the model, which one shape suits; TPUs; prompts
    of image generators, which take a fixed number of words: the rule is silent on these, and on networks that
    are not of transformers.
    """

    code = "DIM019"
    name = "padded-to-limit"
    level = "info"
    confidence = "medium"
    sources = (
        "transformers Padding and truncation: padding=True pads to the longest sequence of a batch, "
        "'max_length' to the limit",
    )
    triggers = ('"max_length"', "'max_length'")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        trained = {
            module: {part.name.partition(".")[0] for part in modules_in(module)}
            for _, optimizer in context.optimizers.all
            for module in context.optimizers.updated_by(optimizer)
        }
        networks = {module for module, packages in trained.items() if "transformers" in packages}
        if not networks or any("diffusers" in packages for packages in trained.values()):
            return
        for event in context.record.of("wrap", "compile"):
            if _compiles(event) and any(
                not networks.isdisjoint(context.facts.held(of)) for of in event.inputs
            ):
                return
        for event in distinct(context.batches.padded_to_limit()):
            if not context.concerns(event):
                continue
            limit = Defaults().constant(event.arguments.get("max_length"))
            length = f"{limit} tokens" if isinstance(limit, int) else "the tokenizer's limit"
            function = event.place.function.qualified_name
            yield self.finding(
                context.at(event),
                f"Every text is padded to {length}, however short it is: training computes on the padding.",
                evidence={"max_length": limit if isinstance(limit, int) else None, "function": function},
                effect=Effect(unknown="how long the texts are is not known from the source"),
                fix=Fix(
                    "Leave padding out here, and pad each batch to its longest text where it is collated: "
                    "DataCollatorWithPadding, or DataCollatorForSeq2Seq for labels too, with "
                    "pad_to_multiple_of=8."
                ),
                identity=f"{function}:{context.code(event)}",
                group=function,
            )


def _compiles(event: Event) -> bool:
    return event.name == "torch.compile" and Defaults().follows(event.path) is not False


def _half_training(context: SourceContext) -> str:
    """'fp16' or 'bf16' if a framework's settings ask for it, or if a trained model is loaded so; else ''."""
    trains = bool(context.record.of("backward"))
    for event in context.record.of("make"):
        for thing in context.facts.things(event.result):
            found = thing.fields
            if thing.cls is not None and thing.cls.file.is_library:
                for precision in ("fp16", "bf16"):
                    if precision in found and Defaults().truth(found[precision]) is True:
                        return precision
                for name in ("mixed_precision", "precision"):
                    text = str(constant_of(found.get(name)))
                    if text.startswith(("fp16", "bf16", "16")):
                        return "bf16" if text.startswith("bf16") else "fp16"
            dtype = found.get("@dtype") if thing.kind == "module" and trains else None
            if isinstance(dtype, Symbol) and dtype.name in _SHORT:
                return _SHORT[dtype.name]
    return ""


def _fixed_length(context: SourceContext) -> bool:
    """Whether sequences have one length, are padded to a multiple by something else, or are not padded."""
    for event in context.record.events:
        given = event.arguments
        if _MAX_LENGTH in given.values() or given.get("attn_implementation") == Constant("flash_attention_2"):
            return True
        # A multiple for the vocabulary does not concern sequences.
        if "pad_to_multiple_of" in given and event.name != ".resize_token_embeddings":
            return True
        if event.name in _PACKS or given.get("packing") == TRUE:
            return True
    return False
