"""Training on a GPU without mixed precision."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.core.finding import Finding, Fix
from tclint.source.context import SourceContext
from tclint.source.names.queries import words
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import CallEvent, method_of

_OTHER = words("autocast float16 bfloat16 half fp16 bf16 amp float64 double precision")


class NoMixedPrecision(SourceRule):
    """A CUDA training loop in float32 throughout. Off by default.

    What it does
    Finds a loop that goes backward and steps an optimizer of torch.optim on a GPU in a file that, like
    the files around it, mentions neither autocast nor a 16-bit dtype nor a framework.

    Why it costs
    Matrix products and convolutions run up to 16 times as fast in float16 as in float32 on the same GPU;
    whole networks gain up to three times. How much this one gains needs its shapes: give tclint the model
    as `file.py:callable`.

    Example
        for images, labels in loader:
            loss = criterion(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()

    Use instead
        with torch.autocast("cuda"):
            loss = criterion(model(images.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    CPU programs, small models (reinforcement learning, tabular data), float64, precision flags of
    frameworks: this file cannot tell, hence low confidence.

    References
    PyTorch, Performance Tuning Guide, "Use mixed precision and AMP".
    """

    code = "AMP016"
    name = "no-mixed-precision"
    since = "0.1.0"
    level = "info"
    confidence = "low"
    enabled_by_default = False
    sources = ("PyTorch recipes, Performance Tuning Guide: Use mixed precision and AMP",)
    triggers = ("cuda",)
    requires = (".backward(", ".step(", "torch.optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.amp.framework or context.tables.identifiers & _OTHER:
            return
        if not context.casts.trained or context.neighbours.mention(("autocast", "float16", "fp16", "gym")):
            return
        if not any(
            isinstance(event, CallEvent)
            and method_of(event.call)[1] in ("Conv2d", "Conv3d", "Linear", "to", "cuda")
            for function in context.tables.functions
            for event in function.events
        ):
            return
        for view in context.scaling.views:
            for backward in view.of("backward"):
                steps = view.after(backward, "step")
                if steps and view.loops(backward):
                    yield self.finding(
                        context.location(backward.node_id),
                        "This loop trains in float32 on a GPU: nothing here uses mixed precision.",
                        related=(context.related(steps[0].node_id, "the optimizer's step"),),
                        evidence={"backward": context.excerpt(backward.node_id), "autocast": None},
                        fix=Fix(
                            "Compute the loss under torch.autocast and scale it with torch.amp.GradScaler; "
                            "lint the model itself to see what it gains."
                        ),
                        identity=view.function.qualified_name,
                    )
                    return


RULES = (NoMixedPrecision,)
