"""Training on a GPU without mixed precision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tclint.plugin import Effect, Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import Training

from .bf16_hardware import gpus_without_bf16

_MOST_RELATED = 8


class NoMixedPrecision(SourceRule):
    """A GPU training loop in float32 throughout.

    What it does
    Finds a training loop on a GPU in a program that uses neither autocast nor a 16-bit dtype, and whose
    model visibly has convolution, linear or attention layers that are not all small; or that uses them only
    if an option of its command line asks for it, which is off by default and which no command in the shell
    scripts, configurations and pages beside it passes. Of frameworks:
    `TrainingArguments` of transformers without `bf16` and `fp16`, and `Trainer` or `Fabric` of Lightning
    without `precision`, whose default is float32; `Accelerator` without `mixed_precision` in a project where
    nothing speaks of `accelerate launch`.

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
    float16 (gradient penalties). `**options`; options that are on by default; a script or a page
    beside the program, or in a folder of its project above it, that speaks of `accelerate launch`, DeepSpeed
    or mixed precision, which choose from outside. TRL's SFTConfig turns bf16 on itself. A checkpoint whose
    dtype is not known: since transformers 5, `from_pretrained` keeps the one that is stored.
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

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for made, scaler in context.float32.stated:
            option = context.spelled(scaler, "autocast")[1]
            yield self.finding(
                context.at(made, scaler, "@precision"),
                "This configuration trains in float32 throughout: mixed precision is off.",
                evidence={"argument": option, "autocast": None},
                effect=Effect(
                    unknown="what a model gains depends on its shapes, which this file does not show"
                ),
                fix=Fix("Choose bf16 on GPUs of compute capability 8.0 and newer, fp16 on older ones."),
                identity="configuration",
            )
            return
        for training, path in context.float32.launched:
            said = f"{os.path.relpath(path)} speaks of a launcher or of mixed precision"
            context.skip(training.event, f"{said}, which may choose it from outside")
        self._say_doubts(context)
        trainings = [item for item in context.float32.trainings if item.layers]
        optional = [] if context.float32.trainings else context.float32_by_default.optional
        for training, option in [(item, option) for item, option in optional if item.layers][:1]:
            if context.concerns(training.event):
                yield self._off_by_default(context, training, option)
        for found in trainings[:1]:
            if not context.concerns(found.event):
                return
            others = {item.event.place: item.event for item in trainings if context.concerns(item.event)}
            others.pop(found.event.place)
            for other in others.values():
                context.skip(other, f"it is reported with {context.where(found.event, other)}")
            fix = (
                "Compute the loss under torch.autocast, in bfloat16 on GPUs that have it, or in float16 and "
                "scale it with torch.amp.GradScaler."
            )
            if context.computes_in_threads:
                fix = (
                    "Autocast inside the network's forward, in bfloat16 on GPUs that have it: in the threads "
                    "of DataParallel an autocast around it computes in float16, whatever it says."
                )
            # In float16 a loop of its own would also need a scaler.
            is_bf16 = not gpus_without_bf16(context.settings)
            places = context.computed_places(trainings) if is_bf16 else {}
            argument = context.spelled(found.scaler, "autocast")[1] if found.scaler is not None else None
            if argument is not None and "=" not in argument:
                argument = None  # the library's table does not give the spelling
            if argument is not None:
                older = context.spelled(found.scaler, "float16")[1] if found.scaler is not None else ""
                if "=" not in older:  # as the library spells bfloat16
                    older = argument.replace("bf16=", "fp16=").replace('"bf16', '"16')
                fix = f"Pass {argument} on GPUs of compute capability 8.0 and newer, {older} on older ones."
                argument = argument if is_bf16 else older
            yield self.finding(
                context.at(found.event),
                f"This {found.name} trains {found.layers} in float32: nothing in the program uses mixed "
                "precision.",
                related=(
                    context.also(*found.shown),
                    *(
                        context.also(other, "the same here")
                        for other in list(others.values())[:_MOST_RELATED]
                    ),
                ),
                evidence={
                    "function": found.event.place.function.qualified_name or "the module",
                    "layers": found.layers,
                    "autocast": None,
                    "argument": argument,
                },
                effect=Effect(
                    unknown="what a model gains depends on its shapes, which this file does not show"
                ),
                fix=Fix(fix, places=places),
                identity=found.event.place.function.qualified_name,
            )

    def _say_doubts(self, context: SourceContext) -> None:
        """Note why other trainings are not reported."""
        for training in context.float32.trainings:
            if not training.layers:
                context.skip(training.event, "its layers are too small to gain by 16 bits")
        for event, doubt in context.float32.doubtful:
            if context.is_in_program(event):
                shown = doubt.shown or event
                is_shown = shown is not event and context.is_in_program(shown)
                where = f": {context.where(shown, event)}" if is_shown else ""
                context.skip(event, f"it {doubt.why}{where}")

    def _off_by_default(self, context: SourceContext, training: Training, option: str) -> Finding:
        return self.finding(
            context.at(training.event),
            f"This {training.name} trains {training.layers} in float32 unless {option} is passed: mixed "
            "precision is off by default.",
            related=(context.also(*training.shown),),
            evidence={
                "function": training.event.place.function.qualified_name or "the module",
                "layers": training.layers,
                "autocast": None,
                "option": option,
            },
            effect=Effect(unknown="what a model gains depends on its shapes, which this file does not show"),
            fix=Fix(f"Pass {option} in the commands that start it, or make it the default."),
            identity=training.event.place.function.qualified_name,
        )

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        from tclint.plugin.graph import autocast

        return context.once(autocast)
