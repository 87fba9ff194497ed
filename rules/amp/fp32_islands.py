"""Regions with autocast switched off that get 16-bit tensors."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct, render
from tclint.plugin.source import HALF_DTYPES, Region, Value


class Fp32IslandMissingFloat(SourceRule):
    """A region with autocast disabled that gets float16 tensors without a cast.

    What it does
    Finds calls of layers and losses under `autocast(enabled=False)` that get tensors which autocast left in
    16 bits, inside an enabled region or after one.

    Why it costs
    Disabling autocast does not cast anything back: the tensors are still float16, ops between them run in
    float16, and layers with float32 weights raise ("expected scalar type Float but found Half").

    Example
        with torch.autocast("cuda"):
            features = model(x)
            with torch.autocast("cuda", enabled=False):
                loss = head(features)

    Use instead
        with torch.autocast("cuda"):
            features = model(x)
            with torch.autocast("cuda", enabled=False):
                loss = head(features.float())

    When it does not apply
    Tensors that are cast back or that autocast computes in float32 (losses, softmax, norms), tensors from
    elsewhere, inner regions that are enabled.
    """

    code = "AMP027"
    name = "fp32-island-missing-float"
    level = "warning"
    confidence = "medium"
    sources = (
        "PyTorch Automatic Mixed Precision package, torch.autocast: cast inputs of a nested disabled region",
    )
    triggers = ("autocast",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[object] = set()
        for event, value, island in distinct(self._fed(context)):
            if island.place not in seen:
                seen.add(island.place)
                yield self._report(context, event, value, island)

    def _fed(self, context: SourceContext) -> Iterator[tuple[Event, Value, Region]]:
        """(computation, 16-bit tensor that it gets, region with autocast disabled)."""
        trained = {
            event
            for backward in context.gradients.backwards
            for event in context.autocasts.differentiated(backward.loss)
        }
        for event in context.record.of("forward", "call", "op"):
            found = context.autocasts.around(event)
            if found is None or context.facts.is_on(found[1], event.path) is not False:
                continue
            if event in context.flow.followed or not self._computes(event, event in trained):
                continue
            for value in event.arguments.values():
                if context.dtypes.of(value) in HALF_DTYPES and context.dtypes.cast_by(value) is not None:
                    yield event, value, found[0]

    def _computes(self, event: Event, is_trained: bool) -> bool:
        """Whether an event runs layers or a loss: a module, a function of torch.nn, or a part of a loss."""
        if event.kind == "op":
            return event.name.startswith("torch.nn.functional.")
        return event.kind == "forward" or (is_trained and event.name[:1] != ".")

    def _report(self, context: SourceContext, event: Event, value: Value, island: Region) -> Finding:
        outer, dtype = context.dtypes.cast_by(value), context.dtypes.of(value).removeprefix("torch.")
        assert outer is not None
        assert outer.entered is not None
        assert island.entered is not None
        name = _written(event, value)
        return self.finding(
            context.at(event),
            f"`{name}` comes from {dtype} autocast and goes into `{event.callee_name}` where autocast is "
            f"off: it is still {dtype}.",
            related=(
                context.also(outer.entered, "autocast is on from here"),
                context.also(island.entered, "and off from here"),
            ),
            evidence={"tensor": name, "call": context.code(event)},
            fix=Fix(f"Pass `{name}.float()`."),
            identity=f"{event.place.function.qualified_name}:{name}",
        )


def _written(event: Event, value: Value) -> str:
    """An argument of an event's call, as written."""
    position = next((index for index, item in enumerate(event.arguments.values()) if item is value), 0)
    given = event.call.arguments if event.call is not None else ()
    return render(given[position].value) if position < len(given) else event.argument_text
