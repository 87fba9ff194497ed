"""A rule on the switches of TF32."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import Switch, constant_of


class Tf32Disabled(SourceRule):
    """TF32 switched off explicitly.

    What it does
    Finds `torch.backends.cuda.matmul.allow_tf32 = False`, `torch.backends.cudnn.allow_tf32 = False`,
    `fp32_precision = "ieee"` and `torch.set_float32_matmul_precision("highest")` that always run.

    Why it costs
    Float32 matrix products and convolutions then avoid Tensor Cores: 19.5 instead of 156 TFLOP/s on an A100.
    For cuDNN this takes away what PyTorch has switched on by default.

    Example
        torch.backends.cudnn.allow_tf32 = False

    Use instead
        torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("high")

    When it does not apply
    Code that needs float32 accuracy or bitwise reproducibility. The rule is silent about switches under a
    condition, in tests, in programs that set them at several places or ask for deterministic operations, and
    in those that make float64 the default dtype.
    """

    code = "PRC002"
    name = "tf32-disabled"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: what the switches do",
    )
    triggers = ("tf32", "fp32_precision", "set_float32_matmul_precision")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for switch in context.switches.all:
            off = _kept_off(switch)
            if not off or not context.concerns(switch.event):
                continue
            why = self._excuse(context, switch)
            if why:
                context.skip(switch.event, why)
                continue
            yield self.finding(
                context.at(switch.event),
                f"`{context.code(switch.event)}` keeps {off} off TF32 Tensor Cores.",
                related=context.said_in(switch.value),
                evidence={"switch": switch.name, "value": constant_of(switch.value)},
                fix=Fix(
                    "Remove the line, or enable TF32 where accuracy allows it "
                    '(`torch.set_float32_matmul_precision("high")`); if float32 is needed, say so with '
                    "`# tclint: ignore[tf32-disabled]`."
                ),
                identity=f"{switch.event.place.function.qualified_name}:{switch.name}",
            )

    def _excuse(self, context: SourceContext, switch: Switch) -> str:
        if not context.switches.is_always(switch.event):
            return "it is set under a test, or within a context"
        if context.switches.is_set_elsewhere(switch):
            return "the program sets it at another place as well"
        if context.switches.asks_for_exactness:
            return "the program asks for deterministic operations, or for float64"
        return ""


def _kept_off(switch: Switch) -> str:
    """The operators that a switch keeps from using TF32; '' if there are none."""
    if switch.precision != "ieee" or not switch.operators:
        return ""
    if switch.operators == ("matmul",):
        return "float32 matrix products"
    if "matmul" in switch.operators:
        return "float32 work"
    return "convolutions" if switch.last == "allow_tf32" else "convolutions and recurrent layers"
