"""Models cast to float16 as a whole and trained without loss scaling."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import TRAINS, Cast


class HalfTrainNoScaler(SourceRule):
    """A float16 model trained without loss scaling.

    What it does
    Finds a model that `.half()` or `.to(torch.float16)` turns into float16, whose parameters go to an
    optimizer and whose loss is backpropagated, where nothing in the file scales losses.

    Why it costs
    Gradients below 2^-24 become zero in float16, and so do updates smaller than 2^-11 of the weight they
    are added to: without loss scaling and float32 master weights, training stalls.

    Example
        model = Net().cuda().half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...
        model(images.half()).sum().backward()
        optimizer.step()

    Use instead
        model = Net().cuda()
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda"):
            loss = model(images).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    When it does not apply
    Inference, copies for checkpoints, models that are cast back to float32, losses scaled by hand,
    optimizers that keep master weights (FP16_Optimizer, Megatron, DeepSpeed, apex), bfloat16.
    """

    code = "AMP002"
    name = "half-train-no-scaler"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Train With Mixed Precision, Loss Scaling To Preserve Small Gradient Magnitudes: gradients"
        " too small for float16 become zero",
        "PyTorch Automatic Mixed Precision package, Gradient Scaling: why float16 gradients underflow",
    )
    triggers = (".half(", "float16", "torch.half", "HalfTensor", "-true")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Event, Finding] = {}
        for cast, backward in self._unscaled(context):
            if cast.event not in found:
                found[cast.event] = self._report(context, cast, backward)
        yield from found.values()

    def _unscaled(self, context: SourceContext) -> Iterator[tuple[Cast, Event]]:
        gradients = context.gradients
        for step in context.record.of("step", "scaler_step"):
            optimizers = context.scaled_steps.optimizers_of(step)
            for backward in gradients.last_backwards(step, optimizers):
                is_off = gradients.is_off(backward.scalers, backward.event)
                if (backward.scalers and not is_off) or gradients.is_scaled_by_hand(backward):
                    continue
                if gradients.may_be_scaled_elsewhere(backward, ()):
                    continue
                for cast in context.weights.casts(backward, optimizers):
                    if cast.dtype == "torch.float16":
                        yield cast, backward.event

    def _report(self, context: SourceContext, cast: Cast, backward: Event) -> Finding:
        name = context.weights.model_name(cast)
        return self.finding(
            context.at(cast.event),
            f"`{name}` is trained in float16 (its parameters go to the optimizer on "
            f"{context.where(cast.optimizer, cast.event)}) and no loss is scaled: gradients below 2^-24 "
            "become zero, small updates are lost.",
            related=(
                context.also(cast.optimizer, "the optimizer of the float16 parameters"),
                context.also(backward, "the loss goes backward unscaled"),
            ),
            evidence={
                "model": name,
                "cast": context.code(cast.event),
                "optimizer": context.code(cast.optimizer),
                "scaler": None,
            },
            fix=Fix(
                "Keep the model in float32, compute under torch.autocast and scale the loss with "
                "torch.amp.GradScaler; or train in bfloat16 on compute capability 8.0 and newer."
            ),
            identity=name,
        )
