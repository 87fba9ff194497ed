"""A rule on cuDNN switched off."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import FALSE


class CudnnDisabled(SourceRule):
    """cuDNN switched off.

    What it does
    Finds `torch.backends.cudnn.enabled = False` that always runs, where nothing sets it to anything else.

    Why it costs
    Convolutions and recurrent layers fall back to PyTorch's own kernels, which unfold inputs into matrices
    one image at a time and use Tensor Cores little or not at all.

    Example
        torch.backends.cudnn.enabled = False

    Use instead
        torch.backends.cudnn.enabled = True   # the default: remove the line

    When it does not apply
    Debugging behind a flag, tests, a switch that is set back.
    """

    code = "RUN004"
    name = "cudnn-disabled"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch torch.backends, torch.backends.cudnn.enabled: what it switches off",)
    triggers = ("cudnn",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        switch = context.switches.only("torch.backends.cudnn.enabled", FALSE)
        if switch is None or not context.concerns(switch.event):
            return
        yield self.finding(
            context.at(switch.event),
            "`cudnn.enabled = False` runs convolutions and recurrent layers without cuDNN, mostly off Tensor "
            "Cores.",
            evidence={"switch": switch.name, "value": False},
            fix=Fix(
                "Remove the line; for reproducible runs use `torch.backends.cudnn.deterministic = True`."
            ),
            identity=f"{switch.event.place.function.qualified_name}:{switch.name}",
        )
