"""A rule on float16 autocast whose loss nothing scales."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.autocast_flow import Backward, Flow
from tclint.source.facts.autocasts import Region
from tclint.source.names.queries import mutually_exclusive
from tclint.source.syntax.tables import Argument, dotted, method_of, render
from tclint.source.training.across_files import flows_across_files
from tclint.source.training.scaler_ops import scales_itself

_SCALING = ("scaler", "Scaler", "loss_scal", "scale_loss", "accelerat", "deepspeed", "lightning", "apex")
"""In files of a project whose losses may be scaled."""


class Fp16AutocastNoScaler(SourceRule):
    """Training under float16 autocast without scaling the loss.

    What it does
    Finds `loss.backward()` on a loss that was computed under float16 autocast (the default dtype of
    autocast on CUDA) where nothing in the file scales losses. The region may be in the forward of a model
    that another file defines, if nothing there scales losses either.

    Why it costs
    float16 represents nothing between 0 and 2^-24 and loses precision below 2^-14. Gradients of the ops
    that ran in float16 are float16 as well, and many of them are smaller than that: they become zero,
    weights stop learning, and the network converges worse or not at all. Scaling the loss moves gradients
    into the range; `torch.amp.GradScaler` chooses the factor and undoes it before the step.

    Example
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

    Use instead
        scaler = torch.amp.GradScaler("cuda")
        ...
        with torch.autocast("cuda"):
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

        # or, on compute capability 8.0 and newer, bfloat16, which has the exponent range of float32:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

    When it does not apply
    bfloat16 or CPU autocast, a dtype that is chosen at run time, regions without gradients, losses scaled
    by hand. Where only the device is chosen at run time (`device.type`), the default on CUDA counts if
    the file mentions CUDA. The rule is silent if the file mentions a scaler that it does not visibly make
    and use itself, imports a framework that scales losses (Accelerate, Lightning, DeepSpeed, apex, ...),
    sets the default dtype of autocast, or passes the loss to a helper that may scale it; and in functions
    that do anything with a scaler.
    """

    code = "AMP001"
    name = "fp16-autocast-no-scaler"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Gradient Scaling: float16 gradients underflow without it",
        "PyTorch Automatic Mixed Precision examples, Typical Mixed Precision Training: autocast and "
        "GradScaler together",
        "NVIDIA Train With Mixed Precision, Loss Scaling To Preserve Small Gradient Magnitudes: gradients"
        " too small for float16 become zero",
    )
    triggers = (".backward(",)
    requires = (".step(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        amp = context.amp
        if amp.framework or amp.rescales_gradients or not amp.steps_optimizer:
            return
        if amp.scaler_name and not context.scaling.all_known:
            return
        flows = context.flows
        if context.neighbours.known and context.neighbours.mention(("autocast",), imported_only=True):
            if context.neighbours.mention(_SCALING) is None and not amp.scaler_name:
                flows = context.once(flows_across_files)
        elif "autocast" not in context.tables.identifiers:
            return
        for flow in flows:
            lossy = [
                (backward, region)
                for backward in flow.backwards
                if (region := _float16_origin(backward)) is not None
                and not _handled_exclusively(context, flow, backward)
                and not context.scaling.is_near(backward.call.node_id, region.autocast.enabled is True)
            ]
            if lossy and not self._optimizer_scales(context, flow):
                yield self._report(context, flow, lossy)

    def _optimizer_scales(self, context: SourceContext, flow: Flow) -> bool:
        """What steps after the backward pass is made by code of the project that speaks of loss scaling."""
        return any(
            scales_itself(context, flow.function, step.optimizer)
            for view in context.scaling.views
            if view.function is flow.function
            for step in view.of("step")
        )

    def _report(self, context: SourceContext, flow: Flow, lossy: list[tuple[Backward, Region]]) -> Finding:
        backward, region = lossy[0]
        autocast = region.autocast
        start = context.location(region.node_id)
        where = f"on line {start.line}"
        if region.elsewhere:
            path, _, line = region.elsewhere.rpartition(":")
            where = f"in the model's forward ({os.path.basename(path)}, line {line})"
        loss = render(backward.loss)
        why = "dtype=float16" if autocast.dtype_given else "its default dtype on CUDA is float16"
        when = "" if autocast.enabled else " (where it is enabled)"
        others = tuple(
            context.related(other.call.node_id, f"`{render(other.loss)}` is not scaled here either")
            for other, _ in lossy[1:]
        )
        return self.finding(
            context.location(backward.call.node_id),
            f"`{loss}` comes from float16 autocast {where}{when} and goes backward unscaled: "
            "gradients below 2^-24 become zero.",
            related=(context.related(region.node_id, f"float16 autocast: {why}"), *others),
            evidence={
                "loss": loss,
                "function": flow.function.qualified_name,
                "autocast": context.excerpt(autocast.node_id),
                "autocast_line": start.line,
                "dtype": "float16",
                "dtype_from": "argument" if autocast.dtype_given else "default",
                "enabled": {True: "always", None: "decided at run time"}[autocast.enabled or None],
                "scaler": None,
            },
            fix=Fix(
                'Make one `scaler = torch.amp.GradScaler("cuda")` before the loop, then call '
                f"`scaler.scale({loss}).backward()`, `scaler.step(optimizer)` and `scaler.update()`; or, on "
                "compute capability 8.0 and newer, pass dtype=torch.bfloat16 to autocast: it needs no scaler."
            ),
            identity=f"{flow.function.qualified_name}:{loss}",
        )


def _float16_origin(backward: Backward) -> Region | None:
    """The first float16 GPU region that an unscaled loss comes from."""
    if backward.origin.scaled or any(
        argument.keyword in ("", "gradient", "grad_tensors") and not argument.star
        for argument in _own_arguments(backward)
    ):
        return None
    for region in sorted(backward.origin.regions, key=lambda region: (region.function, region.block)):
        autocast = region.autocast
        on_gpu = autocast.devices is None or "cuda" in autocast.devices
        if autocast.dtype == "float16" and autocast.enabled is not False and on_gpu:
            return region
    return None


def _own_arguments(backward: Backward) -> tuple[Argument, ...]:
    receiver, _ = method_of(backward.call)
    # torch.autograd.backward takes the loss as its first argument, Tensor.backward a gradient.
    is_function = receiver is not None and dotted(receiver).endswith("autograd")
    return backward.call.arguments[1:] if is_function else backward.call.arguments


def _handled_exclusively(context: SourceContext, flow: Flow, backward: Backward) -> bool:
    """Another branch of the same decision hands the loss to a helper: mixed precision may be its job."""
    for event in flow.function.calls:
        if mutually_exclusive(flow.function, event.block, backward.block):
            receiver, method = method_of(event.call)
            if (
                method == "scale"
                and receiver is not None
                and context.scaling.is_scaler(flow.function, receiver)
            ):
                continue  # what chooses between the two is asked about where scalers are
            arguments = {render(argument.value) for argument in event.call.arguments}
            called = context.resolver.called(flow.function, event.call)
            if render(backward.loss) in arguments and not any(name.startswith("torch.") for name in called):
                return True
    return False
