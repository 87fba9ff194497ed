"""Rules on the switches of TF32: turned off, or set by the older API."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.switches import Switch
from tclint.source.names.queries import is_test_path
from tclint.source.training.precision_switches import (
    CUDNN,
    MATMUL,
    SETTER,
    about_determinism,
    computes_in_float64,
    reason_given,
    set_again,
)


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
    condition, in tests, in functions about determinism or seeds, where the old value is restored, under a
    comment that gives the reason, and in files that make float64 the default dtype.
    """

    code = "PRC002"
    name = "tf32-disabled"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: what the switches do",
    )
    triggers = ("allow_tf32", "fp32_precision", "set_float32_matmul_precision")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        if is_test_path(context.path) or computes_in_float64(context):
            return
        for switch in program.switches:
            off = _tf32_off(switch)
            if not off or not program.unconditional(switch.function, switch.block):
                continue
            if program.in_with(switch.function, switch.block, "") or about_determinism(context, switch):
                continue
            if set_again(context, switch) or reason_given(context, switch):
                continue
            yield self.finding(
                context.location(switch.node_id),
                f"`{context.excerpt(switch.node_id)}` keeps {off} off TF32 Tensor Cores.",
                evidence={"switch": switch.name, "value": switch.value.values[0]},
                fix=Fix(
                    "Remove the line, or enable TF32 where accuracy allows it "
                    '(`torch.set_float32_matmul_precision("high")`); if float32 is needed, say so with '
                    "`# tclint: ignore[tf32-disabled]`."
                ),
                identity=f"{switch.function.qualified_name}:{switch.name}",
            )


class Tf32LegacyApi(SourceRule):
    """TF32 controlled through allow_tf32 instead of fp32_precision.

    What it does
    Finds assignments to `allow_tf32`, the older of the two APIs for TF32.

    Why it costs
    Nothing today. PyTorch 2.9 introduced `fp32_precision`, which also covers bf16 and single operators,
    and announced that the older switches will be deprecated. Mixing both raises (tf32-mixed-api), so a
    program has to move in one go.

    Example
        torch.backends.cuda.matmul.allow_tf32 = True

    Use instead
        torch.backends.cuda.matmul.fp32_precision = "tf32"

    When it does not apply
    Programs that must run on PyTorch before 2.9, and code that reads the older switches elsewhere: the rule
    is off unless selected.
    """

    code = "PRC003"
    name = "tf32-legacy-api"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("PyTorch CUDA semantics, TensorFloat-32 (TF32) on Ampere (and later) devices: the newer API",)
    triggers = ("allow_tf32",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if "fp32_precision" in context.tables.identifiers:
            return  # a program on its way, or one that serves both; tf32-mixed-api looks at it
        for switch in context.program.switches:
            head, _, last = switch.name.rpartition(".")
            if last != "allow_tf32" or not switch.value.certain:
                continue
            value = "tf32" if switch.value.values[0] else "ieee"
            operators = (f"{head}.conv", f"{head}.rnn") if head == CUDNN else (head,)
            newer = " and ".join(f'`{name}.fp32_precision = "{value}"`' for name in operators)
            yield self.finding(
                context.location(switch.node_id),
                f"`{head.removeprefix('torch.backends.')}.allow_tf32` is the older TF32 switch.",
                evidence={"switch": switch.name, "value": value},
                fix=Fix(
                    f"From PyTorch 2.9 on: {newer}, together with every other TF32 switch of the program."
                ),
                identity=f"{switch.function.qualified_name}:{switch.name}",
            )


def _tf32_off(switch: Switch) -> str:
    """What a switch keeps off TF32; '' when it does not."""
    if not switch.value.certain:
        return ""
    value = switch.value.values[0]
    if switch.name == SETTER:
        return "float32 matrix products" if value == "highest" else ""
    head, _, last = switch.name.rpartition(".")
    if last == "allow_tf32" and value is False:
        return {"torch.backends.cuda.matmul": "float32 matrix products", CUDNN: "convolutions"}.get(head, "")
    if last == "fp32_precision" and value == "ieee" and "mkldnn" not in head:
        if head == MATMUL:
            return "float32 matrix products"
        return "convolutions and recurrent layers" if CUDNN in head else "float32 work"
    return ""
