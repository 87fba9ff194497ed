"""A rule on constants that are copied to the GPU in every training step."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Effect, Finding, Fix, Location, SourceContext, SourceRule
from tclint.plugin.source import TRAINS


class ConstantsCopied(SourceRule):
    """A constant copied to the GPU in every training step.

    What it does
    Finds tensors, NumPy arrays and lists that are the same in every step, and that every step copies to the
    GPU: anchors and encodings of positions that are no buffers of their module, schedules and statistics that
    are NumPy arrays, weights of classes, lists that index tensors. It looks at training loops, at what they
    call, and at forwards. There is one finding for a program; it lists the other places.

    Why it costs
    The bytes cross PCIe from memory that is not pinned, and the CPU waits for it: a copy without
    `non_blocking` waits until the GPU has done all the work that was queued before.

    Example
        class Criterion(nn.Module):
            def __init__(self, priors):
                super().__init__()
                self.priors = torch.tensor(priors)

            def forward(self, boxes):
                return (boxes - self.priors.to(boxes.device)).abs().sum()

    Use instead
        class Criterion(nn.Module):
            def __init__(self, priors):
                super().__init__()
                self.register_buffer("priors", torch.tensor(priors), persistent=False)

            def forward(self, boxes):
                return (boxes - self.priors).abs().sum()

    When it does not apply
    Values that are not known to be the same in every step; copies under a test of the step, of an option or
    of the device; attributes that the first copy replaces; programs on the CPU. Tensors that a step fills
    with numbers of its own, such as zeros, are a subject of RUN015, batches of RUN007 and RUN008.
    """

    code = "RUN029"
    name = "constant-copied-per-step"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization: which calls wait",
        "PyTorch torch.nn.Module, register_buffer: tensors that move with their module",
    )
    triggers = (".cuda(", ".to(", ".type_as(", "torch.cuda.", "device=")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[Location] = set()
        for transfer in context.transfers.constant:
            copy, made = transfer.event, transfer.made
            if not context.is_shown(copy) or (at := context.at(copy)) in seen:
                continue
            seen.add(at)
            shown, function = context.shown(copy), copy.place.function.qualified_name
            related = [] if context.lints(copy) else [context.also(copy, "by this copy")]
            if made is not None and not context.transfers.constants.is_repeated(made, copy):
                related.append(context.also(made, "made here, once"))
            yield self.finding(
                at,
                f"`{shown}` copies the same values to the GPU in every "
                + ("step" if context.transfers.is_in_step(copy) else "call")
                + (", and the CPU waits for it." if transfer.is_blocking else "."),
                related=tuple(related),
                evidence={"function": function},
                effect=Effect(
                    unknown="the source does not show how large it is, nor how far the CPU runs ahead"
                ),
                fix=Fix(
                    "Make it a buffer of its module (register_buffer), which moves to the GPU with it."
                    if copy.inside is not None
                    else "Copy it once, before the loop."
                ),
                identity=f"{function}:{shown}",
                group=self.name,
            )
