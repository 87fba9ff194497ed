"""Training on a GPU without mixed precision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, keyword, words
from tclint.source.training.precision_switches import SCIENCE, imported_packages
from tclint.source.training.steps import is_repeated
from tclint.source.training.trained_layers import trained_parts
from tclint.source.training.trainers import InFloat32, loads_float32, trainings_in_float32

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
        if is_test_path(context.path) or context.program.words & _OTHER:
            return
        found = next(iter(trainings_in_float32(context)), None) or _loop(context)
        if found is None or imported_packages(context) & SCIENCE or context.neighbours.mention(_ELSEWHERE):
            return
        fix = (
            "Compute the loss under torch.autocast, in bfloat16 on GPUs that have it, or in float16 and "
            "scale it with torch.amp.GradScaler."
        )
        argument = None
        if found.name.endswith("TrainingArguments"):
            argument = "bf16=True"
        elif found.name != "loop":  # Lightning 1 knows only "bf16"
            argument = f'precision="{"bf16" if keyword(found.call, "gpus") else "bf16-mixed"}"'
        if argument:
            older = argument.replace("bf16=", "fp16=").replace('"bf16', '"16')
            fix = f"Pass {argument} on GPUs of compute capability 8.0 and newer, {older} on older ones."
        yield self.finding(
            context.location(found.call.node_id),
            f"This {found.name} trains {found.parts.layers} in float32: nothing here, nor in the files that "
            "run with it, uses mixed precision.",
            related=(context.related(*found.shown),),
            evidence={
                "function": found.function.qualified_name or "the module",
                "layers": found.parts.layers,
                "autocast": None,
                "argument": argument,
            },
            effect=Effect(unknown="what a model gains depends on its shapes, which this file does not show"),
            fix=Fix(fix),
            identity=found.function.qualified_name,
        )

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        from tclint.analysis.precision_changes import autocast

        return context.once(autocast)


def _loop(context: SourceContext) -> InFloat32 | None:
    """A training loop of the file's own on a GPU, with layers to gain by."""
    program = context.program
    if not program.trainings or context.amp.framework or not context.on_gpu:
        return None
    if ("precision" in program.words and "recall" not in program.words) or not context.neighbours.known:
        return None
    parts = trained_parts(context)
    training = next((training for training in program.trainings if is_repeated(context, training)), None)
    if not parts.layers or training is None or not loads_float32(parts):
        return None
    return InFloat32.of_loop(training, parts)
