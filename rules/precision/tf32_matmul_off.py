"""A rule on float32 training whose matrix products leave TF32 unused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, words
from tclint.source.training.precision_switches import SCIENCE, imported_packages
from tclint.source.training.trained_layers import trained_parts
from tclint.source.training.trainers import InFloat32, loads_float32, trainings_in_float32

_TF32_WORDS = (
    "allow_tf32",
    "set_float32_matmul_precision",
    "fp32_precision",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "NVIDIA_TF32_OVERRIDE",
)
_OTHER_PRECISIONS = words(
    "autocast bfloat16 float16 half fp16 bf16 mixed gradscaler amp float64 double tf32 quantize quantization"
)
"""Words of identifiers that say that float32 is not, or not always, what the program computes in."""


class Tf32MatmulOff(SourceRule):
    """Float32 training of linear or attention layers without TF32.

    What it does
    Finds training loops on CUDA that run in float32, whose model consists of linear and attention layers,
    in a program that never touches a TF32 switch. PyTorch's default is `highest`: matrix products then run
    on the float32 pipes, not on Tensor Cores.

    Why it costs
    On an A100 TF32 Tensor Cores have 156 TFLOP/s, the float32 pipes 19.5; PyTorch measured about 7 times
    the speed on a large product, with a relative error of 2e-3 instead of 4e-5, which training of neural
    networks rarely notices: the accumulation stays float32.

    Example
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()

    Use instead
        torch.set_float32_matmul_precision("high")   # once, before the loop

    When it does not apply
    Compute capability below 8.0; programs under autocast or in another dtype; convolutions, for which
    cuDNN uses TF32 by default; transformers' `torch_compile`, which switches TF32 on; numerical work that
    needs float32. The rule is silent if this file or one that runs with it mentions a TF32 switch or a
    precision, if a training framework is imported (but for transformers' Trainer and Lightning, where they
    are seen to train in float32 because nobody says otherwise), if the layers are narrower than 256, and if
    it cannot see what the model consists of.
    """

    code = "PRC001"
    name = "tf32-matmul-off"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: about 7 times the "
        "speed, relative error 2e-3",
        "PyTorch Performance Tuning Guide, Enable TF32: the switch",
        "PyTorch torch.set_float32_matmul_precision: the default is `highest`",
        "NVIDIA A100 Tensor Core GPU Architecture: 156 TFLOP/s in TF32 and 19.5 in float32",
    )
    triggers = (".backward(", "TrainingArguments(", "Trainer(", "Fabric(")
    pattern = re.compile(rb"\.step\(|\.train\(|\.fit\(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or (
            program.words & _OTHER_PRECISIONS
            or "fp32_precision" in context.tables.identifiers
            or "set_float32_matmul_precision" in context.tables.identifiers
            or imported_packages(context) & SCIENCE
        ):
            return
        compiles = any("torch_compile" in name for name in program.lower_identifiers)
        by_framework = (
            item for item in trainings_in_float32(context) if item.parts.products and not compiles
        )
        found = next(by_framework, None) or _loop(context)
        elsewhere = (*_TF32_WORDS, "autocast", "bfloat16", "torch.float16", ".half()")
        if found is None or context.neighbours.mention(elsewhere):
            return
        argument = "tf32=True" if found.name.endswith("TrainingArguments") else None
        switch = 'Call `torch.set_float32_matmul_precision("high")` once before training'
        yield self.finding(
            context.location(found.call.node_id),
            f"This {found.name} trains {found.parts.products} in float32 and no TF32 switch is set: matrix "
            "products run without Tensor Cores.",
            related=(context.related(*found.shown),),
            evidence={
                "function": found.function.qualified_name or "the module",
                "layers": found.parts.products,
                "float32_matmul_precision": "highest (default)",
                "argument": argument,
            },
            fix=Fix(
                f"{f'Pass {argument}' if argument else switch}, on GPUs of compute capability 8.0 and newer."
            ),
            identity=found.function.qualified_name,
        )

    def change(self, finding: Finding, context: Any) -> Any:  # noqa: ARG002
        from tclint.analysis.precision_changes import tf32

        return context.once(tf32)


def _loop(context: SourceContext) -> InFloat32 | None:
    """A training loop of the file's own on a GPU, with matrix products to gain by."""
    program = context.program
    if not program.trainings or not context.on_gpu or context.amp.framework or context.amp.scaler_name:
        return None
    parts = trained_parts(context)
    known = parts.products and loads_float32(parts)
    return InFloat32.of_loop(program.trainings[0], parts) if known else None
