"""A rule on float64 batches."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, Location, SourceContext, SourceRule
from tclint.plugin.source import TRAINS


class Float64Copies(SourceRule):
    """Float64 numbers copied to the GPU in every training step.

    What it does
    Finds batches that are float64 because NumPy makes them so where no dtype is written (`np.zeros`,
    `np.random.rand`, `astype(float)`), and that every training step copies to the GPU. It follows them
    through datasets, their transforms and collate functions.

    Why it costs
    They take twice the bytes of float32 in the memory of the host and over PCIe. What the GPU computes with
    them before a cast runs in float64, at 1/2 to 1/64 of its rate in float32.

    Example
        def __getitem__(self, index):
            padded = np.zeros((512, 512, 3))
            ...
            return torch.from_numpy(padded)

    Use instead
        def __getitem__(self, index):
            padded = np.zeros((512, 512, 3), dtype=np.float32)
            ...
            return torch.from_numpy(padded)

    When it does not apply
    Programs that ask for float64 anywhere (`.double()`, `torch.float64`); arrays whose dtype is written, or
    is not known; batches that are cast to float32 before they are copied.
    """

    code = "RUN030"
    name = "float64-copied"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization: which calls wait",
    )
    triggers = (".cuda(", ".to(", "torch.cuda.", "device=", ".fit(", "training_step")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[Location] = set()
        for copy, made in context.transfers.in_float64:
            if not context.is_shown(copy) or (at := context.at(copy)) in seen:
                continue
            seen.add(at)
            shown, function = context.shown(copy), copy.place.function.qualified_name
            yield self.finding(
                at,
                f"`{shown}` copies float64 numbers to the GPU in every step, twice the bytes of float32.",
                related=(context.also(made, "float64 by NumPy's default"),),
                evidence={"function": function},
                effect=Effect(unknown="the source does not show how many numbers there are"),
                fix=Fix("Write the dtype where they are made: dtype=np.float32, or .astype(np.float32)."),
                identity=f"{function}:{shown}",
                group=self.name,
            )
