"""Loss scalers where the gradients are bfloat16."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.autocast_flow import Backward
from tclint.source.facts.autocasts import Region
from tclint.source.names.queries import conditions_of
from tclint.source.syntax.tables import Expression, Function, dotted, method_of, render

_COMPARED = re.compile(r"==|!=|\bin\b|startswith|\bmatch\b")
_DTYPE_WORDS = re.compile(r"bf16|bfloat|float16|fp16|half|dtype|precision|prec\b")


class ScalerWithBf16(SourceRule):
    """Loss scaling for bfloat16 autocast.

    What it does
    Finds `scaler.scale(loss)` on a loss that comes only from bfloat16 autocast, with a scaler that is
    always enabled, or whose `enabled` has nothing to do with the dtype.

    Why it costs
    bfloat16 has the exponent range of float32, so gradients do not underflow without scaling. A scaler
    then only adds work to every step: scaling, a pass over all gradients to unscale them, and a
    synchronization to look for inf.

    Example
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    Use instead
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
        loss.backward()
        optimizer.step()

        # or, where the dtype is an option, a scaler that is off in bfloat16:
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)

    When it does not apply
    A dtype chosen at run time, a scaler that is disabled or whose `enabled` depends on the dtype or the
    precision, a scaler that comes from elsewhere.
    """

    code = "AMP008"
    name = "scaler-with-bf16"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Autocasting and Gradient Scaling: it is float16 that "
        "uses autocast and GradScaler together",
    )
    triggers = ("bfloat16",)
    requires = ("autocast", ".scale(")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for flow in context.flows:
            for scaled in flow.scaled:
                receiver, _ = method_of(scaled.call)
                if receiver is None or not context.scaling.is_scaler(flow.function, receiver):
                    continue
                region = _only_bf16(scaled)
                name = dotted(receiver)
                made, others = context.scaling.origins(flow.function, name)
                if region is None or not made or others:
                    continue
                if any(
                    item.enabled is False
                    or (
                        item.enabled is None
                        # `GradScaler(**options)`: the options may switch it off.
                        and (
                            "enabled" not in item.arguments
                            or _by_dtype(context, flow.function, _enabled_text(item.arguments))
                        )
                    )
                    for item in made
                ):
                    continue
                conditions = conditions_of(flow.function, scaled.block)
                if any(_by_dtype(context, flow.function, condition.text) for condition in conditions):
                    continue
                line = context.location(region.node_id).line
                yield self.finding(
                    context.location(scaled.call.node_id),
                    f"`{render(scaled.loss)}` comes from the bfloat16 autocast of line {line}; bfloat16 has "
                    f"float32's range and needs no loss scaling, `{name}` only costs time.",
                    related=(
                        context.related(region.node_id, "bfloat16 autocast"),
                        context.related(made[0].node_id, "the scaler is made here"),
                    ),
                    evidence={
                        "loss": render(scaled.loss),
                        "autocast": context.excerpt(region.autocast.node_id),
                        "scaler": context.excerpt(made[0].node_id),
                        "enabled": "always" if made[0].enabled else "decided at run time",
                    },
                    fix=Fix(
                        "Drop the scaler (`loss.backward()`, `optimizer.step()`), or make it with "
                        "`enabled=dtype == torch.float16`."
                    ),
                    identity=f"{flow.function.qualified_name}:{render(scaled.loss)}",
                )


def _only_bf16(scaled: Backward) -> Region | None:
    """A bfloat16 region that a loss comes from; None when it may come from any other."""
    regions = sorted(scaled.origin.regions, key=lambda region: (region.function, region.block))
    if regions and all(
        region.autocast.dtype == "bfloat16" and region.autocast.enabled is not False for region in regions
    ):
        return regions[0]
    return None


def _enabled_text(arguments: Mapping[str, Expression]) -> str:
    expression = arguments.get("enabled")
    return render(expression) if expression is not None else ""


def _by_dtype(context: SourceContext, function: Function, text: str) -> bool:
    """A test speaks of a dtype, or of a name whose value does: `use_amp = not use_bf16`."""
    if _speaks_of_dtype(text):
        return True
    return any(
        _speaks_of_dtype(render(item.value))
        for name in re.findall(r"[A-Za-z_][\w.]*", text)
        for _, item in context.resolver.definitions(function, name)[0]
    )


def _speaks_of_dtype(text: str) -> bool:
    """Not where it only asks whether there is mixed precision at all: `if config["mixed_precision"]:`."""
    lowered = text.lower()
    if not _COMPARED.search(lowered):
        lowered = lowered.replace("mixed_precision", "").replace("mixedprecision", "")
    return _DTYPE_WORDS.search(lowered) is not None
