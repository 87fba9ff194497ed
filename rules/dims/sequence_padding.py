"""A rule on sequences that are padded to whatever the longest of a batch is."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import Called, conditions_of, has_star, is_test_path, keyword
from tclint.source.names.resolve import dtype_of
from tclint.source.syntax.tables import Call, Expression, Literal, Operation, dotted, method_of

_COLLATORS = tuple(
    f"transformers.{name}"
    for name in (
        "DataCollatorWithPadding",
        "DataCollatorForSeq2Seq",
        "DataCollatorForTokenClassification",
        "DataCollatorForLanguageModeling",
    )
)
_PADS = ("torch.nn.utils.rnn.pad_sequence",)
_ARGUMENTS = (
    "transformers.TrainingArguments",
    "transformers.Seq2SeqTrainingArguments",
    "accelerate.Accelerator",
    "lightning.Fabric",
    "lightning.fabric.Fabric",
    "lightning.Trainer",
    "lightning.pytorch.Trainer",
    "pytorch_lightning.Trainer",
)
_SHORT = {"float16": "fp16", "bfloat16": "bf16"}


class SequencePad(SourceRule):
    """Batches padded to the longest sequence under mixed precision.

    What it does
    Finds Hugging Face padding collators without `pad_to_multiple_of`, and `pad_sequence`, in files that train
    with fp16 or bf16: by the arguments of a trainer, or by the dtype that the model is loaded in.

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
    triggers = ("DataCollator", "pad_sequence")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or _fixed_length(context):
            return
        precision = _half_training(context)
        if not precision:
            return
        padded: set[int] = set()
        for called in program.calls(*_COLLATORS, *_PADS):
            if has_star(called.call) or keyword(called.call, "pad_to_multiple_of") is not None:
                continue
            if keyword(called.call, "padding") == Literal("max_length"):
                continue
            if "packing" in context.tables.identifiers and not _where_none_is_packed(called):
                continue
            last = called.qualified.rpartition(".")[2]
            fix = Fix("Pass pad_to_multiple_of=8 (64 for A100 and newer).")
            if called.qualified in _PADS:
                if called.function.index in padded:
                    continue
                padded.add(called.function.index)
                fix = Fix("Pad the result further, to a multiple of 8 (64 for A100 and newer).")
            yield self.finding(
                context.location(called.call.node_id),
                f"{last} pads to the longest sequence of each batch, rarely a multiple of 8, in {precision} "
                "training.",
                evidence={"collator": last, "pad_to_multiple_of": None, "precision": precision},
                fix=fix,
                identity=f"{called.function.qualified_name}:{last}",
            )


def _where_none_is_packed(called: Called) -> bool:
    """In the other branch of `if args.packing`."""
    conditions = conditions_of(called.function, called.block)
    return any("packing" in condition.text and not condition.holds for condition in conditions)


def _half_training(context: SourceContext) -> str:
    """'fp16' or 'bf16' where the file asks for it."""
    for called in context.program.calls(*_ARGUMENTS):
        for precision in ("fp16", "bf16"):
            given = keyword(called.call, precision)
            if given == Literal(True) or (given is not None and _where_there_is_a_gpu(given)):
                return precision
            for option in ("mixed_precision", "precision"):
                given = keyword(called.call, option)
                text = str(given.value) if isinstance(given, Literal) else ""
                if text.startswith(precision) or (precision == "fp16" and text.startswith("16")):
                    return precision
    for function, event, _ in context.program.methods("from_pretrained"):
        given = keyword(event.call, "torch_dtype") or keyword(event.call, "dtype")
        dtype = dtype_of(context.resolver.evaluate(function, given).only) if given is not None else None
        if dtype in _SHORT and context.program.trainings:
            return _SHORT[dtype]
    return ""


def _where_there_is_a_gpu(value: Expression) -> bool:
    """`fp16=torch.cuda.is_available()`, alone or with other conditions on the device."""
    if isinstance(value, Operation) and value.operator == "and":
        return all(map(_where_there_is_a_gpu, value.operands))
    return isinstance(value, Call) and dotted(value.function).endswith(
        ("cuda.is_available", "is_bf16_supported")
    )


def _fixed_length(context: SourceContext) -> bool:
    identifiers = context.tables.identifiers
    if identifiers & {
        "max_length_padding",
        "group_texts",
        "flash_attention_2",
        "pack_padded_sequence",
        "pad_packed_sequence",
    }:
        return True
    multiples = [
        method_of(event.call)[1]
        for _, event in context.tables.calls
        if "pad_to_multiple_of" in identifiers and keyword(event.call, "pad_to_multiple_of") is not None
    ]
    # Of the vocabulary, that says nothing of sequences.
    if multiples and set(multiples) != {"resize_token_embeddings"}:
        return True
    for function, event, _ in context.program.methods(
        "tokenizer", "__call__", "encode_plus", "batch_encode_plus"
    ):
        del function
        if keyword(event.call, "padding") == Literal("max_length"):
            return True
    return "max_length" in identifiers and any(
        keyword(event.call, "padding") == Literal("max_length") for _, event in context.tables.calls
    )
