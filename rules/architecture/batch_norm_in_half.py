"""Batch norms that a cast of the whole model turns into 16 bits, in training."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Symbol, Thing, render
from tclint.plugin.source import TRAINS, Place, modules_in

_HALF = frozenset({"torch.float16", "torch.bfloat16"})


class BatchNormInHalf(SourceRule):
    """Batch norms keep their running statistics in 16 bits while the model trains.

    What it does
    Finds `.half()`, `.bfloat16()` and `.to(torch.float16)` on a model that an optimizer trains and that
    has batch norms - in its classes, in this file or another file of the project, or as a torchvision or
    timm network chosen by a literal name - where nothing in the file casts the norms back to float32.

    Why it costs
    The cast converts the running mean and variance too. Each step moves them a tenth of the way to the
    batch's, and rounding loses changes below about 2^-11 (float16) or 2^-8 (bfloat16) of the statistic;
    variances above 65504 become infinite in float16. cuDNN's batch norm takes float16 activations only
    with float32 parameters, so PyTorch cannot use it either.

    Example
        model = torchvision.models.resnet50().cuda().half()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    Use instead
        model = torchvision.models.resnet50().cuda().half()
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.float()

    When it does not apply
    Inference, models that are not trained, norms that go back to float32 (by hand, apex's
    keep_batchnorm_fp32), frozen batch norms, frameworks that cast, other norms.
    """

    code = "ARC019"
    name = "batchnorm-in-half"
    level = "warning"
    confidence = "high"
    sources = (
        "NVIDIA Train With Mixed Precision: batch norm keeps its statistics in float32",
        "PyTorch 2.13 aten/src/ATen/native/Normalization.cpp, _select_batch_norm_backend: cuDNN needs "
        "float32 parameters",
        "IEEE 754-2019: binary16 has 11 significant bits and holds at most 65504",
    )
    triggers = (".half(", "float16", "torch.half")
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen = set[Place]()
        for call, module in context.layouts.trained():
            if not context.networks.is_trained(module, call):
                continue
            for norm, name, dtype in _norms_in_half(context, call, module):
                cast = _cast(context, call, module, dtype)
                if cast is None or cast.place in seen or not context.concerns(cast):
                    continue
                seen.add(cast.place)
                yield self._finding(context, call, cast, norm, name, dtype.removeprefix("torch."))

    def _finding(
        self, context: SourceContext, call: Event, cast: Event, norm: Event, name: str, dtype: str
    ) -> Finding:
        here = call.place.function is cast.place.function and call.call is not None
        model = render(call.call.function) if here and call.call is not None else cast.receiver_name
        steps = context.record.of("step", "scaler_step")[:1]
        bits = 11 if dtype == "float16" else 8
        return self.finding(
            context.at(cast),
            f"`{model}` has batch norms ({name}), whose running statistics go to {dtype} "
            f"with it: updates below about 2^-{bits} of a statistic are lost in training.",
            related=(
                context.also(norm, "the batch norm"),
                *(context.also(step, "the optimizer of the model steps here") for step in steps),
            ),
            evidence={"model": model, "norm": name, "dtype": dtype},
            fix=Fix(
                "Call .float() on every batch norm after the cast; or keep the model in float32 and "
                "compute under torch.autocast."
            ),
            identity=model,
        )


def _norms_in_half(context: SourceContext, call: Event, module: Thing) -> Iterator[tuple[Event, str, str]]:
    """(event that made it, name, dtype) of the 16-bit batch norms that a call of a model runs."""
    flow = context.flow
    parts = {thing for event in context.record.of("to") for thing in flow.facts.things(event.subject)}
    if not {module, *modules_in(module)}.isdisjoint(part.fields.get("@part of") for part in parts):
        # A loop over the parts of the model casts some of them back to float32.
        return
    runs = [event for event in (call, *context.record.inside(call)) if event.kind == "forward"]
    layers = [(thing, event) for event in runs for thing in flow.facts.things(event.subject)]
    if call not in flow.followed:
        layers = [(part, call) for part in modules_in(module, only_sure=True)]
    for layer, event in layers:
        dtype, name = event.changed.get("@dtype"), context.networks.norm_of(layer)
        if isinstance(dtype, Symbol) and dtype.name in _HALF and layer.made is not None and name:
            yield layer.made, name, dtype.name


def _cast(context: SourceContext, call: Event, module: Thing, dtype: str) -> Event | None:
    """The event that cast a model to a dtype before a call of it."""
    for event in reversed(context.record.of("to")):
        whole = next(context.facts.things(event.subject), None)
        given = event.arguments.get("dtype")
        if event.index > call.index or whole is None or given != Symbol(dtype):
            continue
        if module in modules_in(whole) or whole in modules_in(module):
            return event
    return None
