"""Training on a GPU without mixed precision."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, keyword, words
from tclint.source.training.precision_switches import SCIENCE, imported_packages, training_evidence
from tclint.source.training.steps import is_repeated
from tclint.source.training.trained_layers import trained_layers
from tclint.source.training.trainers import trainings_in_float32

_OTHER = words(
    "autocast bfloat16 float16 half fp16 bf16 mixed gradscaler amp float64 double quantize quantization "
    "apex loss_scale scaler"
)
"""Words of identifiers that say that float32 is not, or not always, what the program computes in."""
_ELSEWHERE = (
    "autocast",
    "float16",
    "fp16",
    "bf16",
    ".half()",
    "GradScaler",
    "mixed_precision",
    "apex",
    "gym",
    "atari",
    "env.step(",
)


class NoMixedPrecision(SourceRule):
    """A GPU training loop in float32 throughout.

    What it does
    Finds a training loop on a GPU where neither the file nor the files that run with it mention autocast,
    a 16-bit dtype or a framework, and where the model visibly has convolution, linear or attention layers
    that are not all small. Of frameworks: `TrainingArguments` of transformers without `bf16` and `fp16`,
    and `Trainer` or `Fabric` of Lightning without `precision`, whose default is float32.

    Why it costs
    Matrix products and convolutions run up to 16 times as fast in float16 as in float32 on the same GPU;
    whole networks run up to three times as fast. What this one gains depends on its shapes: give tclint
    the model as `file.py:callable` to find out.

    Example
        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()

    Use instead
        with torch.autocast("cuda"):
            loss = criterion(model(images.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    CPU programs, small models (reinforcement learning, tabular data), float64, precision flags of
    frameworks (`bf16=False` and `precision=32` included), double backward through layers that overflow in
    float16 (gradient penalties). Arguments that come from a command line or `**options`; a script or a page
    beside the program that speaks of `accelerate launch`, DeepSpeed or mixed precision, which choose from
    outside. TRL's SFTConfig turns bf16 on itself. A checkpoint whose dtype is not known: since
    transformers 5, `from_pretrained` keeps the one that is stored.
    """

    code = "AMP016"
    name = "no-mixed-precision"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Performance Tuning Guide, Use mixed precision and AMP: up to three times the speed on "
        "Volta and newer",
        "transformers TrainingArguments, bf16 and fp16: False by default",
        "Lightning Trainer, precision: 32-true by default",
    )
    triggers = (".backward(", "TrainingArguments(", "Trainer(", "Fabric(")
    pattern = re.compile(rb"\.step|\.train\(|\.fit\(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or program.words & _OTHER:
            return
        yield from self._by_framework(context)
        if not program.trainings or context.amp.framework:
            return
        if "precision" in program.words and "recall" not in program.words:
            return
        if not context.on_gpu or imported_packages(context) & SCIENCE:
            return
        layers = trained_layers(context)
        if not layers or not context.neighbours.known or context.neighbours.mention(_ELSEWHERE):
            return
        training = next((training for training in program.trainings if is_repeated(context, training)), None)
        if training is None:
            return
        yield self.finding(
            context.location(training.backward.call.node_id),
            f"This loop trains {layers} in float32: nothing here, nor in the files that run with it, uses "
            "mixed precision.",
            related=training_evidence(context, training),
            evidence={
                "function": training.function.qualified_name or "the module",
                "layers": layers,
                "autocast": None,
            },
            effect=Effect(unknown="what a model gains depends on its shapes, which this file does not show"),
            fix=Fix(
                "Compute the loss under torch.autocast, in bfloat16 on GPUs that have it, or in float16 and "
                "scale it with torch.amp.GradScaler; lint the model itself to see what it gains."
            ),
            identity=training.function.qualified_name,
        )

    def _by_framework(self, context: SourceContext) -> Iterator[Finding]:
        found = trainings_in_float32(context)
        if not found or imported_packages(context) & SCIENCE or context.neighbours.mention(_ELSEWHERE):
            return
        first = found[0]
        name = first.stated.qualified.rpartition(".")[2]
        is_arguments = name.endswith("TrainingArguments")
        mixed = "bf16" if keyword(first.stated.call, "gpus") else "bf16-mixed"
        argument = "bf16=True" if is_arguments else f'precision="{mixed}"'
        older = argument.replace("bf16=", "fp16=").replace('"bf16', '"16')
        missing = "neither bf16 nor fp16" if is_arguments else "no precision"
        others = [
            context.related(item.stated.call.node_id, "this says nothing of precision either")
            for item in found[1:]
            if item.stated.call.node_id != first.stated.call.node_id
        ]
        yield self.finding(
            context.location(first.stated.call.node_id),
            f"This {name} has {missing}: {first.trained.layers} trains in float32.",
            related=(context.related(first.starts, "it trains here"), *others),
            evidence={
                "function": first.stated.function.qualified_name or "the module",
                "layers": first.trained.layers,
                "argument": argument,
            },
            effect=Effect(unknown="what a model gains depends on its shapes, which this file does not show"),
            fix=Fix(f"Pass {argument} on GPUs of compute capability 8.0 and newer, {older} on older ones."),
            identity=f"{name}:{first.stated.function.qualified_name}",
        )
