"""A rule on cuDNN switched off."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import is_test_path
from tclint.source.training.cudnn_switches import (
    CUDNN_ENABLED,
    SEEDING,
    in_any_with,
    inside_named,
    reason_given,
)


class CudnnDisabled(SourceRule):
    """cuDNN switched off.

    What it does
    Finds `torch.backends.cudnn.enabled = False` that always runs.

    Why it costs
    Convolutions and recurrent layers fall back to PyTorch's own kernels, which unfold inputs into matrices
    one image at a time and use Tensor Cores little or not at all.

    Example
        torch.backends.cudnn.enabled = False

    Use instead
        torch.backends.cudnn.enabled = True   # the default: remove the line

    When it does not apply
    Debugging behind a flag, tests, a switch that is set back, and one with a comment that says what fails
    with cuDNN.
    """

    code = "RUN004"
    name = "cudnn-disabled"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch torch.backends, torch.backends.cudnn.enabled: what it switches off",)
    triggers = ("cudnn",)
    requires = ("enabled",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        switches = program.switches_of(CUDNN_ENABLED)
        if is_test_path(context.path) or len(switches) != 1:
            return
        switch = switches[0]
        if switch.value.only is not False:
            return
        if not program.unconditional(switch.function, switch.block) or in_any_with(switch):
            return
        if inside_named(program, switch, (*SEEDING, "debug", "test", "restore", "disable")):
            return
        if reason_given(context, switch):
            return
        yield self.finding(
            context.location(switch.node_id),
            "`cudnn.enabled = False` runs convolutions and recurrent layers without cuDNN, mostly off Tensor "
            "Cores.",
            evidence={"switch": switch.name, "value": False},
            fix=Fix(
                "Remove the line; for reproducible runs use `torch.backends.cudnn.deterministic = True`."
            ),
            identity=f"{switch.function.qualified_name}:{switch.name}",
        )
