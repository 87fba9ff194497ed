"""A rule on float32 training whose matrix products leave TF32 unused."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path, words
from tclint.source.training.precision_switches import SCIENCE, imported_packages, training_evidence
from tclint.source.training.trained_layers import matmul_layers
from tclint.source.training.trainers import trainings_in_float32

_TF32_WORDS = (
    "allow_tf32",
    "set_float32_matmul_precision",
    "fp32_precision",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "NVIDIA_TF32_OVERRIDE",
)
_ELSEWHERE = (*_TF32_WORDS, "autocast", "bfloat16", "torch.float16", ".half()")
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
    cuDNN uses TF32 by default; numerical work that needs float32. The rule is silent if this file or one
    that runs with it mentions a TF32 switch or a precision, if a training framework is imported (but for
    transformers' Trainer and Lightning, where they are seen to train in float32 because nobody says
    otherwise), if the layers are narrower than 256, and if it cannot see what the model consists of.
    """

    code = "PRC001"
    name = "tf32-matmul-off"
    since = "0.1.0"
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
        yield from self._by_framework(context)
        if not program.trainings or not context.on_gpu or context.amp.framework or context.amp.scaler_name:
            return
        layers = matmul_layers(context)
        if not layers or context.neighbours.mention(_ELSEWHERE):
            return
        training = program.trainings[0]
        where = training.function.qualified_name or "the module"
        yield self.finding(
            context.location(training.backward.call.node_id),
            f"This loop trains {layers} in float32 and no TF32 switch is set: matrix products run without "
            "Tensor Cores.",
            related=training_evidence(context, training),
            evidence={"function": where, "layers": layers, "float32_matmul_precision": "highest (default)"},
            fix=Fix(
                'Call `torch.set_float32_matmul_precision("high")` once before training, on GPUs of compute '
                "capability 8.0 and newer."
            ),
            identity=f"{training.function.qualified_name}",
        )

    def _by_framework(self, context: SourceContext) -> Iterator[Finding]:
        found = [item for item in trainings_in_float32(context) if item.trained.products]
        if not found or context.neighbours.mention((*_ELSEWHERE, "fp16", "bf16", "mixed_precision")):
            return
        first = found[0]
        name = first.stated.qualified.rpartition(".")[2]
        is_arguments = name.endswith("TrainingArguments")
        switch = "Pass tf32=True"
        if not is_arguments:
            switch = 'Call `torch.set_float32_matmul_precision("high")` once before training'
        yield self.finding(
            context.location(first.stated.call.node_id),
            f"This {name} trains {first.trained.products} in float32 and no TF32 switch is set: matrix "
            "products run without Tensor Cores.",
            related=(context.related(first.starts, "it trains here"),),
            evidence={
                "function": first.stated.function.qualified_name or "the module",
                "layers": first.trained.products,
                "float32_matmul_precision": "highest (default)",
                "argument": "tf32=True" if is_arguments else None,
            },
            fix=Fix(f"{switch}, on GPUs of compute capability 8.0 and newer."),
            identity=f"{name}:{first.stated.function.qualified_name}",
        )
