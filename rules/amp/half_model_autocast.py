"""Models cast to a 16-bit dtype as a whole and run under autocast as well."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.autocasts import Region
from tclint.source.facts.casts import ModelCast
from tclint.source.syntax.tables import CallEvent, Function, Literal, Name, dotted, method_of, render
from tclint.source.training.training_casts import MASTER_WEIGHTS, half_input, trained_casts


class HalfModelWithAutocast(SourceRule):
    """A model cast to 16 bits as a whole, together with autocast or a loss scaler.

    What it does
    Finds `.half()`, `.to(torch.float16)` or `.bfloat16()` on a model whose parameters go to an optimizer,
    where the file uses a GradScaler (float16 only) or runs that model under autocast; and `.half()` on
    the inputs of a model under autocast in a training step.

    Why it costs
    With float16 parameters, `scaler.step` and `scaler.unscale_` raise "ValueError: Attempting to unscale
    FP16 gradients". Without a scaler, parameters and their updates lose the precision that autocast
    preserves by leaving the weights in float32.

    Example
        model = Net().cuda().half()
        optimizer = torch.optim.Adam(model.parameters())
        with torch.autocast("cuda"):
            loss = model(images.half())
        scaler.scale(loss).backward()
        scaler.step(optimizer)

    Use instead
        model = Net().cuda()
        optimizer = torch.optim.Adam(model.parameters())
        with torch.autocast("cuda"):
            loss = model(images)
        scaler.scale(loss).backward()
        scaler.step(optimizer)

    When it does not apply
    Models that are not trained (teachers, copies for evaluation, frozen encoders), optimizers that keep
    float32 masters of float16 parameters (FP16_Optimizer, Megatron, DeepSpeed), casts after training,
    models that are cast back to float32, inference.
    """

    code = "AMP009"
    name = "half-model-with-autocast-or-scaler"
    level = "error"
    confidence = "high"
    sources = (
        'PyTorch 2.13 torch/amp/autocast_mode.py: "You should not call half() or bfloat16() on your '
        'model(s) or inputs when using autocasting"',
        "PyTorch 2.13 torch/amp/grad_scaler.py, _unscale_grads_: refuses float16 gradients",
    )
    triggers = (".half(", "float16", "bfloat16", "torch.half")
    requires = (".backward(", "optim")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if context.amp.framework or any(
            MASTER_WEIGHTS.search(name.lower()) for name in context.tables.identifiers
        ):
            return
        reported = set()
        for cast, optimizer in trained_casts(context):
            found = self._scaled(context, cast, optimizer) or self._autocast(context, cast, optimizer)
            if found is not None and cast.name not in reported:
                reported.add(cast.name)
                yield found
        if not reported:
            yield from self._inputs(context)

    def _scaled(self, context: SourceContext, cast: ModelCast, optimizer: int) -> Finding | None:
        if cast.dtype != "float16":
            return None
        used = [
            (view, op)
            for view in context.scaling.views
            for op in view.of("scaler_step", "unscale")
            if not context.scaling.is_off(view, op)
        ]
        # Where the casting function itself trains, only what it does after the cast counts.
        same = [item for item in used if item[1].places[0].function == cast.function]
        for _, op in same or used:
            if not same or op.places[0].node_id > cast.node_id:
                what = "step" if op.kind == "scaler_step" else "unscale_"
                return self.finding(
                    context.location(cast.written),
                    f"`{cast.name}` is float16 from here on; `{op.scaler}.{what}({op.optimizer})` raises "
                    "ValueError (Attempting to unscale FP16 gradients) on float16 parameters.",
                    related=(
                        context.related(op.node_id, "the scaler unscales here"),
                        context.related(optimizer, "the optimizer of the float16 parameters"),
                    ),
                    evidence={
                        "model": cast.name,
                        "cast": context.excerpt(cast.written),
                        "scaler": op.scaler,
                        "optimizer": context.excerpt(optimizer),
                    },
                    fix=Fix("Leave the model in float32; autocast runs its matrix products in float16."),
                    identity=cast.name,
                )
        return None

    def _autocast(self, context: SourceContext, cast: ModelCast, optimizer: int) -> Finding | None:
        last = cast.name.rpartition(".")[2]
        own = context.tables.functions[cast.function]
        trains_itself = any(
            view.function is own and view.of("step", "scaler_step") for view in context.scaling.views
        )
        for function in (own,) if trains_itself else context.tables.functions:
            for event, called, region in _calls_under_autocast(context, function):
                if called.rpartition(".")[2] != last or region.autocast.dtype == "float32":
                    continue
                if function.index == cast.function and event.call.node_id < cast.node_id:
                    continue
                line = context.location(region.node_id).line
                return self.finding(
                    context.location(cast.written),
                    f"`{cast.name}` is cast to {cast.dtype} as a whole and runs under the autocast of line "
                    f"{line}, which expects float32 weights: the optimizer then updates "
                    f"{cast.dtype} weights.",
                    related=(
                        context.related(region.node_id, "autocast is on from here"),
                        context.related(optimizer, f"the optimizer of the {cast.dtype} parameters"),
                    ),
                    evidence={
                        "model": cast.name,
                        "cast": context.excerpt(cast.written),
                        "autocast": context.excerpt(region.autocast.node_id),
                        "optimizer": context.excerpt(optimizer),
                    },
                    fix=Fix("Leave the model in float32; autocast casts what gains from it."),
                    level="warning",
                    identity=cast.name,
                )
        return None

    def _inputs(self, context: SourceContext) -> Iterator[Finding]:
        trained = {name.rpartition(".")[2] for name in context.casts.trained}
        cast = {item.name.rpartition(".")[2] for item in context.casts.model_casts}
        for view in context.scaling.views:
            function = view.function
            if not view.of("backward", "scaled_backward"):
                continue
            for event, called, region in _calls_under_autocast(context, function):
                name = called.rpartition(".")[2]
                if not region.autocast.enabled or name in cast:
                    continue
                if name not in trained and not _is_model_in_training(context, function, called):
                    continue
                inputs = (half_input(function, argument.value, event) for argument in event.call.arguments)
                for given in [found for found in inputs if found is not None][:1]:
                    line = context.location(region.node_id).line
                    yield self.finding(
                        context.location(given.node_id),
                        f"`{render(given)}` casts the input of `{name}` under the autocast of line {line}, "
                        "which already casts where that pays off; ops that need float32 get rounded values.",
                        related=(context.related(region.node_id, "autocast is on from here"),),
                        evidence={
                            "input": render(given),
                            "autocast": context.excerpt(region.autocast.node_id),
                            "function": function.qualified_name,
                        },
                        fix=Fix("Pass the input in float32."),
                        level="warning",
                        identity=f"{function.qualified_name}:{render(given)}",
                    )


def _calls_under_autocast(
    context: SourceContext, function: Function
) -> Iterator[tuple[CallEvent, str, Region]]:
    """Calls of what has a name, in an autocast region and with gradients."""
    for event in function.calls:
        if isinstance(event.call.function, Name):
            region = context.amp.autocasts.effective(function, event.block)
            if region is not None and context.amp.gradients_on(function, event.block):
                yield event, event.call.function.dotted, region


def _is_model_in_training(context: SourceContext, function: Function, name: str) -> bool:
    """A model that the function is given, or an attribute that is put to training."""
    last = name.rpartition(".")[2]
    if name in context.casts.models and any(parameter.name == last for parameter in function.parameters):
        return True
    return name.startswith("self.") and _is_put_to_training(context, name)


def _is_put_to_training(context: SourceContext, name: str) -> bool:
    """`self.net.train()`, `self.net.named_parameters()`; a frozen network only sees `eval()`."""
    return any(
        method_of(event.call)[1] in ("train", "parameters", "named_parameters")
        and dotted(method_of(event.call)[0] or Literal(None)) == name
        for _, event in context.tables.calls
    )
