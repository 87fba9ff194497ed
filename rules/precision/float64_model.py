"""A rule on models that compute in float64 on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Symbol, distinct
from tclint.plugin.source import TRAINS, modules_in

_CLASSIFICATION = frozenset(
    f"torch.nn.{name}"
    for name in (
        "CrossEntropyLoss",
        "BCEWithLogitsLoss",
        "BCELoss",
        "functional.cross_entropy",
        "functional.binary_cross_entropy_with_logits",
        "functional.binary_cross_entropy",
    )
)


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
    triggers = (".double()", "float64", "64-true")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        casts = (event for event in context.record.of("to") if _is_double(context, event))
        for event in distinct(casts):
            trained = self._trained(context, event)
            if trained is None or event.path or not context.concerns(event):
                continue
            yield self.finding(
                context.at(event),
                f"`{context.code(event)}` trains the model in float64, at 1/7 or less of the "
                "rate that Tensor Cores reach in TF32 or 16 bits.",
                related=(context.also(trained, "the gradients of this loss train it"),),
                evidence={"function": event.place.function.qualified_name, "dtype": "float64"},
                fix=Fix("Train in float32 with TF32 or in 16 bits under autocast; keep float64 for metrics."),
                identity=f"{event.place.function.qualified_name}:double",
            )

    def _trained(self, context: SourceContext, cast: Event) -> Event | None:
        """The backward pass of a classification loss on a GPU that trains the cast module."""
        modules = {
            part for module in context.facts.kinds(cast.subject, "module") for part in modules_in(module)
        }
        for step in context.steps.all:
            for backward in step.backwards:
                loss = context.facts.loss_of(backward)
                if (
                    any(context.flow.runs(made) in _CLASSIFICATION for made in context.facts.made_by(loss))
                    and not modules.isdisjoint(context.facts.modules_of(loss))
                    and context.devices.is_in_program_for_gpus(loss)
                ):
                    return backward
        return None


def _is_double(context: SourceContext, event: Event) -> bool:
    is_float64 = event.arguments.get("dtype") == Symbol("torch.float64")
    return is_float64 and bool(context.facts.kinds(event.subject, "module"))
