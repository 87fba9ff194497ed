"""Models cast to a 16-bit dtype as a whole and run under autocast as well."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import SCALES, Cast, Region


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
    triggers = (".half(", "float16", "torch.half", "HalfTensor")
    program = SCALES

    def check(self, context: SourceContext) -> Iterator[Finding]:
        found: dict[Event, Finding] = {}
        for cast, step in self._scaled(context):
            if cast.event not in found:
                found[cast.event] = self._raises(context, cast, step)
        for cast, region in self._under_autocast(context):
            if cast.event not in found:
                found[cast.event] = self._rounds(context, cast, region)
        yield from found.values()
        if not found:
            for use, given, region in distinct(self._inputs(context)):
                yield self._input(context, use, given, region)

    def _scaled(self, context: SourceContext) -> Iterator[tuple[Cast, Event]]:
        """Casts to float16 of weights whose gradients a scaler has to unscale."""
        gradients, steps = context.gradients, context.scaled_steps
        for step in context.record.of("unscale", "scaler_step"):
            optimizers = steps.optimizers_of(step)
            for backward in gradients.last_backwards(step, optimizers) if steps.is_on(step) else ():
                scalers = [item for item in backward.scalers if "@masters" not in item.fields]
                for cast in context.weights.casts(backward, optimizers):
                    off = gradients.is_off(backward.scalers, cast.event)
                    if cast.dtype == "torch.float16" and scalers and not off:
                        yield cast, step

    def _under_autocast(self, context: SourceContext) -> Iterator[tuple[Cast, Region]]:
        """Casts to 16 bits of weights that run under an autocast which the program itself enters."""
        for step in context.record.of("step", "scaler_step"):
            optimizers = context.scaled_steps.optimizers_of(step)
            for backward in context.gradients.last_backwards(step, optimizers):
                for cast in context.weights.casts(backward, optimizers):
                    found = context.autocasts.around(cast.use)
                    if found is None or found[0].place.file.is_library:
                        continue
                    if context.facts.is_on(found[1], (*cast.use.path, *cast.event.path)) is not False:
                        yield cast, found[0]

    def _inputs(self, context: SourceContext) -> Iterator[tuple[Event, Event, Region]]:
        """(cast of an input, forward, region) of models that are trained under an enabled autocast."""
        for backward in context.gradients.backwards:
            if not any(True for _ in context.record.after(backward.event, "step", "scaler_step")):
                continue
            for region, autocast, use in context.autocasts.origins(backward.loss):
                if use.kind != "forward" or context.facts.is_on(autocast, use.path) is not True:
                    continue
                for thing in (
                    item for value in use.arguments.values() for item in context.facts.things(value)
                ):
                    cast = thing.made
                    if cast is not None and cast.kind == "to" and cast.name in (".half", ".bfloat16"):
                        yield cast, use, region

    def _raises(self, context: SourceContext, cast: Cast, step: Event) -> Finding:
        name = context.weights.model_name(cast)
        what = "the Trainer" if context.run.is_configuration else f"`{context.shown(step)}`"
        return self.finding(
            context.at(cast.event, cast.module, "dtype"),
            f"`{name}` is float16 from here on; {what} raises ValueError (Attempting to "
            "unscale FP16 gradients) on float16 parameters.",
            related=(
                context.also(step, "the scaler unscales here"),
                context.also(cast.optimizer, "the optimizer of the float16 parameters"),
                *context.set_by(step.subject, "enabled"),
            ),
            evidence={
                "model": name,
                "cast": context.code(cast.event),
                "scaler": step.receiver_name,
                "optimizer": context.code(cast.optimizer),
            },
            fix=Fix("Leave the model in float32; autocast runs its matrix products in float16."),
            identity=name,
        )

    def _rounds(self, context: SourceContext, cast: Cast, region: Region) -> Finding:
        name, dtype, entered = (
            context.weights.model_name(cast),
            cast.dtype.removeprefix("torch."),
            region.entered,
        )
        assert entered is not None
        return self.finding(
            context.at(cast.event),
            f"`{name}` is cast to {dtype} as a whole and runs under the autocast of "
            f"{context.where(entered, cast.event)}, which expects float32 weights: the optimizer then "
            f"updates {dtype} weights.",
            related=(
                context.also(entered, "autocast is on from here"),
                context.also(cast.optimizer, f"the optimizer of the {dtype} parameters"),
            ),
            evidence={
                "model": name,
                "cast": context.code(cast.event),
                "autocast": context.code(entered),
                "optimizer": context.code(cast.optimizer),
            },
            fix=Fix("Leave the model in float32; autocast casts what gains from it."),
            level="warning",
            identity=name,
        )

    def _input(self, context: SourceContext, cast: Event, use: Event, region: Region) -> Finding:
        given, entered = context.code(cast), region.entered
        assert entered is not None
        return self.finding(
            context.at(cast),
            f"`{given}` casts the input of `{use.callee_name}` under the autocast of "
            f"{context.where(entered, cast)}, which already casts where that pays off; ops that need float32 "
            "get rounded values.",
            related=(context.also(entered, "autocast is on from here"),),
            evidence={
                "input": given,
                "autocast": context.code(entered),
                "function": cast.place.function.qualified_name,
            },
            fix=Fix("Pass the input in float32."),
            level="warning",
            identity=f"{cast.place.function.qualified_name}:{given}",
        )
