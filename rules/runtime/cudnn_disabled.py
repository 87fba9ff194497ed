"""A rule on cuDNN switched off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding, Fix
from tclint.core.rule import Example, Rule
from tclint.source.names.queries import is_test_path
from tclint.source.source_rule import SourceRule
from tclint.source.training.cudnn_switches import (
    CUDNN_ENABLED,
    SEEDING,
    in_any_with,
    inside_named,
    reason_given,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext


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
    Debugging behind a flag, tests, a switch that is set back, and one whose comment says what fails with
    cuDNN.

    References
    PyTorch, torch.backends.cudnn.
    """

    code = "RUN004"
    name = "cudnn-disabled"
    since = "0.1.0"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch docs, torch.backends: torch.backends.cudnn.enabled",)
    triggers = ("cudnn",)
    requires = ("enabled",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        switches = program.switches_of(CUDNN_ENABLED)
        if is_test_path(context.path) or len(switches) != 1:
            return
        switch = switches[0]
        if not switch.value.certain or switch.value.values[0] is not False:
            return
        if not program.unconditional(switch.function, switch.block) or in_any_with(switch):
            return
        if inside_named(program, switch, (*SEEDING, "debug", "test", "restore", "disable")):
            return
        if reason_given(context, switch):
            return
        yield self.finding(
            context.location(switch.site),
            "`cudnn.enabled = False` runs convolutions and recurrent layers without cuDNN, mostly off Tensor "
            "Cores.",
            evidence={"switch": switch.name, "value": False},
            fix=Fix(
                "Remove the line; for reproducible runs use `torch.backends.cudnn.deterministic = True`."
            ),
            identity=f"{switch.function.qualified_name}:{switch.name}",
        )

    valid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.enabled = True
""",
            note="the default",
        ),
        Example(
            source="""\
import torch

if args.debug:
    torch.backends.cudnn.enabled = False
""",
            note="a debugging flag",
        ),
        Example(
            source="""\
import torch

def measure(model, x):
    torch.backends.cudnn.enabled = False
    slow = time(model, x)
    torch.backends.cudnn.enabled = True
    return slow / time(model, x)
""",
            note="set back",
        ),
        Example(
            source="""\
# Workaround: the driver crashes in 1-D convolutions
try:
    import torch
    torch.backends.cudnn.enabled = False
except ImportError:
    torch = None
""",
            note="the reason stands above",
        ),
    )
    invalid = (
        Example(
            source="""\
import torch

torch.backends.cudnn.enabled = False
""",
            note="always off",
        ),
        Example(
            source="""\
import torch.backends.cudnn as cudnn

def main():
    cudnn.enabled = False
    train()
""",
            note="through an alias",
        ),
        Example(
            source="""\
from torch.backends import cudnn

if __name__ == "__main__":
    cudnn.enabled = False
    train()
""",
            note="in a script's main part",
        ),
    )


RULES: tuple[type[Rule], ...] = (CudnnDisabled,)
