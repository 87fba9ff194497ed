"""A rule on sequences that are padded to whatever the longest of a batch is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Rule
from tclint.source.names.queries import has_star, is_test_path, keyword
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import Call, CallEvent, Expression, Literal, Operation, dotted

if TYPE_CHECKING:
    from tclint.source.context import SourceContext
_COLLATORS = tuple(
    f"transformers.{name}"
    for name in (
        "DataCollatorWithPadding",
        "DataCollatorForSeq2Seq",
        "DataCollatorForTokenClassification",
        "DataCollatorForLanguageModeling",
    )
)
_ARGUMENTS = (
    "transformers.TrainingArguments",
    "transformers.Seq2SeqTrainingArguments",
    "accelerate.Accelerator",
)


class SequencePad(SourceRule):
    """Batches padded to the longest sequence under mixed precision.

    What it does
    Finds Hugging Face padding collators without `pad_to_multiple_of` in files that train with fp16 or bf16.

    Why it costs
    Every batch is as long as its longest sequence, so that batch times length, the M of every linear layer,
    and the sides of the attention matrices are rarely multiples of 8.

    Example
        collator = DataCollatorWithPadding(tokenizer)

    Use instead
        collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)

    When it does not apply
    Sequences of one length (padding="max_length", packing, grouped texts); variable-length attention
    kernels; float32 training.

    References
    NVIDIA, Train With Mixed Precision, "Satisfying Tensor Core Shape Constraints": sequences in multiples
    of 8.
    """

    code = "DIM008"
    name = "sequence-pad"
    since = "0.1.0"
    level = "info"
    confidence = "high"
    sources = ("NVIDIA, Train With Mixed Precision: Satisfying Tensor Core Shape Constraints",)
    triggers = ("DataCollator",)
    requires = ("transformers",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or _fixed_length(context):
            return
        precision = _half_training(context)
        if not precision:
            return
        for called in program.calls(*_COLLATORS):
            if has_star(called.call) or keyword(called.call, "pad_to_multiple_of") is not None:
                continue
            last = called.qualified.rpartition(".")[2]
            yield self.finding(
                context.location(called.call.node_id),
                f"{last} pads to the longest sequence of each batch, rarely a multiple of 8, in {precision} "
                "training.",
                evidence={"collator": last, "pad_to_multiple_of": None, "precision": precision},
                fix=Fix("Pass pad_to_multiple_of=8 (64 for A100 and newer)."),
                identity=f"{called.function.qualified_name}:{last}",
            )


RULES: tuple[type[Rule], ...] = (SequencePad,)


def _half_training(context: SourceContext) -> str:
    """'fp16' or 'bf16' where the file asks for it."""
    for called in context.program.calls(*_ARGUMENTS):
        for precision in ("fp16", "bf16"):
            given = keyword(called.call, precision)
            if given == Literal(True) or (given is not None and _where_there_is_a_gpu(given)):
                return precision
            if keyword(called.call, "mixed_precision") == Literal(precision):
                return precision
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
        "packing",
        "flash_attention_2",
        "pad_to_multiple_of",
    }:
        return True
    for function, event, _ in context.program.methods(
        "tokenizer", "__call__", "encode_plus", "batch_encode_plus"
    ):
        del function
        if keyword(event.call, "padding") == Literal("max_length"):
            return True
    return "max_length" in identifiers and any(
        keyword(event.call, "padding") == Literal("max_length")
        for function in context.tables.functions
        for event in function.events
        if isinstance(event, CallEvent)
    )
