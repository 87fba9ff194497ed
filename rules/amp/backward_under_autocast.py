"""A rule on backward passes inside of autocast."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, Thing
from tclint.plugin.source import Place, Region


class BackwardUnderAutocast(SourceRule):
    """Backward called inside an autocast region.

    What it does
    Finds calls of `Tensor.backward` inside a `with autocast(...)` block, in a function decorated with
    autocast, or in a function that its file calls only from such places (a call excluded by a condition
    of the function's own, such as `if self.amp:`, does not count).

    Why it costs
    Backward ops run in the dtype that autocast chose for the forward op, whether or not the region is
    still open. What the region adds is autocasting of everything else that runs during backward: hooks,
    custom autograd functions without custom_bwd, recomputed activations. These can then run in a lower
    precision than they did in the forward pass. PyTorch's documentation advises against backward passes
    under autocast.

    Example
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
            loss.backward()

    Use instead
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), labels)
        loss.backward()

    When it does not apply
    A region that is known to be disabled, including by an inner `autocast(enabled=False)`; a branch that
    runs only when it is disabled; functions and lambdas that are merely defined inside the region;
    `backward` methods of engines, trainers and models.
    """

    code = "AMP006"
    name = "backward-under-autocast"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision recipe, Adding torch.autocast: backward passes under autocast "
        "are not recommended",
        "PyTorch Automatic Mixed Precision examples, Typical Mixed Precision Training: backward runs "
        "outside the region",
    )
    triggers = ("autocast",)
    requires = (".backward(",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        places: dict[Place, list[Event]] = {}
        for event in context.record.of("backward"):
            if self._is_of_tensor(context, event):
                places.setdefault(event.place, []).append(event)
        for events in places.values():
            # A function's own run counts only if nothing in the program calls the function.
            called = [event for event in events if not _is_called(event.places[0], events)]
            around = [self._region(context, event) for event in called]
            found = next((item for item in around if item is not None), None)
            if found is None or None in around:
                continue
            yield self._report(context, called[0], *found)

    def _is_of_tensor(self, context: SourceContext, event: Event) -> bool:
        """Whether the backward pass is known to be that of a computed value, and not of an engine."""
        loss = context.facts.loss_of(event)
        if event.name == ".backward" and loss is not event.subject:
            return False
        is_computed = any(made.kind != "make" for made in context.facts.made_by(loss))
        return is_computed or bool(context.facts.kinds(loss, "tensor"))

    def _region(self, context: SourceContext, event: Event) -> tuple[Region, Thing] | None:
        """The autocast region around a backward pass, if it may be enabled."""
        found = context.autocasts.around(event)
        if found is None or found[0].place.file.is_library:
            return None
        if event.place.file.is_library and "@settings" not in found[1].fields:
            return None  # what a framework does under a context that is not its own is its business
        return found if context.facts.is_on(found[1], event.path) is not False else None

    def _report(self, context: SourceContext, event: Event, region: Region, made: Thing) -> Finding:
        what = context.shown(event).partition("(")[0]
        is_decorator = region.entered is None or region.place.node_id == region.place.function.node_id
        how = "decorator" if is_decorator else "region"
        is_on = context.facts.is_on(made)
        start = context.also(region.place, f"the autocast {how} begins here")
        where = context.where(region.entered or event, event)
        return self.finding(
            context.at(event),
            f"`{what}()` runs inside the autocast {how} of {where}"
            f"{'' if is_on else ', where it is enabled'}; leave the region before going backward.",
            related=(start,),
            evidence={
                "call": context.code(event),
                "function": event.place.function.qualified_name,
                "autocast": context.code(made.made) if made.made is not None else "",
                "autocast_line": start.location.line,
                "enabled": "always" if is_on else "decided at run time",
            },
            fix=Fix(
                "Compute only the forward pass and the loss in a `with autocast(...)` block and call "
                "backward after it."
                if is_decorator
                else f"Move `{what}()` and what follows it out of the `with` block, to the block's "
                "own indentation."
            ),
            identity=f"{event.place.function.qualified_name}:{what}",
        )


def _is_called(entry: Place, events: list[Event]) -> bool:
    """Whether one of some events was reached by a call of the function of `entry`."""
    return any(entry.function is place.function for event in events for place in event.places[1:])
