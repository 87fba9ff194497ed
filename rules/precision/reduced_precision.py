"""A rule on matrix products that sum in less than float32."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path
from tclint.source.training.precision_switches import about_determinism, set_again


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
        program = context.program
        if is_test_path(context.path):
            return
        for switch in program.switches:
            if not switch.name.endswith("reduced_precision_reduction") or switch.value.values != (False,):
                continue
            if not switch.value.certain or not program.unconditional(switch.function, switch.block):
                continue
            if about_determinism(context, switch) or set_again(context, switch):
                continue
            yield self.finding(
                context.location(switch.node_id),
                f"`{context.excerpt(switch.node_id)}` excludes split-K kernels that reduce in 16 bits.",
                evidence={"switch": switch.name, "value": False},
                fix=Fix("Remove the line if the accuracy of the default suffices."),
                identity=f"{switch.function.qualified_name}:{switch.name}",
            )
