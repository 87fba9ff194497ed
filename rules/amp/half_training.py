"""Models cast to float16 as a whole and trained without loss scaling."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import mutually_exclusive
from tclint.source.training.scaler_ops import scales_itself
from tclint.source.training.training_casts import MASTER_WEIGHTS, trained_casts


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
    triggers = (".half(", "float16", "torch.half")
    requires = (".backward(", ".step(", "optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        amp = context.amp
        if amp.scaler_name or amp.framework or amp.rescales_gradients or not amp.steps_optimizer:
            return
        if any(MASTER_WEIGHTS.search(name.lower()) for name in context.tables.identifiers):
            return
        backwards = [
            (view, op)
            for view in context.scaling.views
            for op in view.of("backward", "other_backward", "scaled_backward")
        ]
        if not backwards:
            return
        if any(
            scales_itself(context, view.function, step.optimizer)
            for view in context.scaling.views
            for step in view.of("step")
        ):
            return
        for cast, optimizer in trained_casts(context):
            if cast.dtype != "float16":
                continue
            where = context.tables.functions[cast.function]
            together = [
                op
                for _, op in backwards
                if op.places[0].function != cast.function
                or not mutually_exclusive(where, cast.block, op.places[0].block)
            ]
            if not together or any(op.kind != "backward" for op in together):
                continue  # a framework, or a scaler, goes backward where the model is cast
            same = [op for op in together if op.places[0].function == cast.function]
            # Where its own call stands counts: the call may be followed into a helper further up.
            if same and all(op.places[0].node_id < cast.node_id for op in same):
                continue
            backward = same[-1] if same else together[0]
            yield self.finding(
                context.location(cast.written),
                f"`{cast.name}` is trained in float16 (its parameters go to the optimizer on line "
                f"{context.location(optimizer).line}) and no loss is scaled: gradients below 2^-24 become "
                "zero, small updates are lost.",
                related=(
                    context.related(optimizer, "the optimizer of the float16 parameters"),
                    context.related(backward.node_id, "the loss goes backward unscaled"),
                ),
                evidence={
                    "model": cast.name,
                    "cast": context.excerpt(cast.written),
                    "optimizer": context.excerpt(optimizer),
                    "scaler": None,
                },
                fix=Fix(
                    "Keep the model in float32, compute under torch.autocast and scale the loss with "
                    "torch.amp.GradScaler; or train in bfloat16 on compute capability 8.0 and newer."
                ),
                identity=cast.name,
            )
