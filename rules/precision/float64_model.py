"""A rule on models that compute in float64 on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import ON_GPU, is_test_path, keyword
from tclint.source.syntax.tables import Name, method_of
from tclint.source.training.precision_switches import SCIENCE, imported_packages, training_evidence


class Float64Model(SourceRule):
    """A classifier trained in float64 on a GPU.

    What it does
    Finds `model.double()` (or `.to(torch.float64)`) on a module in a file that trains on CUDA with a
    classification loss.

    Why it costs
    The fastest float64 is as fast as float32, on Tensor Cores (A100, A30, H100); V100 and B200 run it at
    half that rate, other GPUs at 1/32 (T4) to 1/67 (H800, B300). Either way that is at most about
    1/7 of what Tensor Cores reach in TF32 or 16 bits: on an A100 19.5 TFLOP/s against 156 and 312. Every
    tensor takes twice the memory of float32.

    Example
        model = Classifier().double().cuda()

    Use instead
        model = Classifier().cuda()

    When it does not apply
    Numerical work: solvers, physics, gradient checks. The rule speaks only about files with a
    cross-entropy or a binary cross-entropy loss, and is silent in tests.
    """

    code = "PRC007"
    name = "float64-model"
    level = "info"
    confidence = "medium"
    sources = (
        "NVIDIA A100 Tensor Core GPU Architecture: float64 at 19.5 TFLOP/s, against 156 in TF32 and 312 "
        "in 16 bits",
        "NVIDIA V100 GPU Architecture: float64 at half the rate of float32",
        "NVIDIA A30 datasheet: float64 Tensor Cores at the rate of float32",
        "NVIDIA Turing GPU Architecture: float64 at 1/32 of the rate of float32",
        "NVIDIA Ampere GA102 GPU Architecture: float64 at 1/64 of the rate of float32",
    )
    triggers = (".double()", "float64")
    requires = (".backward(", "ntropy")
    pattern = ON_GPU

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or not program.trainings or imported_packages(context) & SCIENCE:
            return
        if "gradcheck" in context.tables.identifiers or not program.calls(*_CLASSIFICATION):
            return
        for function, event, _ in program.methods("double", "to"):
            receiver, method = method_of(event.call)
            if receiver is None or not program.unconditional(function, event.block):
                continue
            if method == "to":
                given = keyword(event.call, "dtype", 0)
                named = isinstance(given, Name) and program.resolver.qualified(function, given.dotted)
                if not named or not set(named) & {"torch.float64", "torch.double"}:
                    continue
            elif event.call.arguments:
                continue
            if context.values.kind_of(function, receiver) != "module":
                continue
            yield self.finding(
                context.location(event.call.node_id),
                f"`{context.excerpt(event.call.node_id)}` trains the model in float64, at 1/7 or less of the "
                "rate that Tensor Cores reach in TF32 or 16 bits.",
                related=training_evidence(context, program.trainings[0]),
                evidence={"function": function.qualified_name, "dtype": "float64"},
                fix=Fix("Train in float32 with TF32 or in 16 bits under autocast; keep float64 for metrics."),
                identity=f"{function.qualified_name}:double",
            )


_CLASSIFICATION = (
    "torch.nn.CrossEntropyLoss",
    "torch.nn.BCEWithLogitsLoss",
    "torch.nn.BCELoss",
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.binary_cross_entropy_with_logits",
    "torch.nn.functional.binary_cross_entropy",
)
