"""A rule on matrix products that sum in less than float32."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.run.values import FALSE


class ReducedPrecisionReduction(SourceRule):
    """Reduced-precision reductions in 16-bit matrix products switched off.

    What it does
    Finds `allow_fp16_reduced_precision_reduction = False` and its bf16 twin that always run.

    Why it costs
    cuBLAS may then not reduce partial sums of split-K products in 16 bits, which excludes some of its faster
    kernels for products with a large K and small M and N.

    Example
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    Use instead
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True   # the default

    When it does not apply
    Programs whose accuracy suffers, which may be why it was switched off: the rule is off unless
    selected.
    """

    code = "PRC006"
    name = "reduced-precision-reduction"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = (
        "PyTorch CUDA semantics, Reduced Precision Reduction in FP16 GEMMs and in BF16 GEMMs: what the "
        "switches allow",
    )
    triggers = ("reduced_precision_reduction",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switches = context.switches
        for switch in switches.all:
            is_off = switch.last.endswith("reduced_precision_reduction") and switch.value == FALSE
            if not is_off or not switches.is_always(switch.event) or not context.concerns(switch.event):
                continue
            if switches.asks_for_exactness or switches.is_set_elsewhere(switch):
                continue
            yield self.finding(
                context.at(switch.event),
                f"`{context.code(switch.event)}` excludes split-K kernels that reduce in 16 bits.",
                evidence={"switch": switch.name, "value": False},
                fix=Fix("Remove the line if the accuracy of the default suffices."),
                identity=f"{switch.event.place.function.qualified_name}:{switch.name}",
            )
