"""A rule on backward passes inside of autocast."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import CallEvent, Finding, Fix, Function, SourceContext, SourceRule, render
from tclint.source.facts.autocasts import Region
from tclint.source.names.queries import Condition, conditions_of, exclusive

_CALLS_FOLLOWED = 3


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
        amp = context.amp
        for function, event in context.tables.calls:
            if not _is_backward(context, function.index, event):
                continue
            region = amp.autocasts.effective(function, event.block)
            if region is None and not amp.autocasts.active(function, event.block):
                tests = _about_the_object(function, event.block)
                region = _called_under(context, function, tests, _CALLS_FOLLOWED)
            if region is None:
                continue
            start = context.location(region.node_id)
            what = render(event.call.function)
            how = "decorator" if region.block == 0 else "region"
            when = "" if region.autocast.enabled else ", where it is enabled"
            yield self.finding(
                context.location(event.call.node_id),
                f"`{what}()` runs inside the autocast {how} of line {start.line}{when}; leave the region "
                "before going backward.",
                related=(context.related(region.node_id, f"the autocast {how} begins here"),),
                evidence={
                    "call": context.excerpt(event.call.node_id),
                    "function": function.qualified_name,
                    "autocast": context.excerpt(region.autocast.node_id),
                    "autocast_line": start.line,
                    "enabled": {True: "always", None: "decided at run time"}[region.autocast.enabled or None],
                },
                fix=Fix(
                    "Compute only the forward pass and the loss in a `with autocast(...)` block and call "
                    "backward after it."
                    if how == "decorator"
                    else f"Move `{what}()` and what follows it out of the `with` block, to the block's "
                    "own indentation."
                ),
                identity=f"{function.qualified_name}:{what}",
            )


def _called_under(
    context: SourceContext, function: Function, tests: tuple[Condition, ...], depth: int
) -> Region | None:
    """The autocast region that every call of a function in its file is under that can lead to code which
    runs under these tests; None where one call is not."""
    calls = context.resolver.callers.get(function.index, [])
    found: Region | None = None
    for caller, event in calls if depth > 0 else ():
        here = _about_the_object(caller, event.block)
        if exclusive(tests, here):
            continue
        region = context.amp.autocasts.effective(caller, event.block)
        if region is None and not context.amp.autocasts.active(caller, event.block):
            region = _called_under(context, caller, (*tests, *here), depth - 1)
        if region is None:
            return None
        found = found or region
    return found


def _about_the_object(function: Function, block: int) -> tuple[Condition, ...]:
    """Tests around a block that mean the same in every method: `if self.amp:`."""
    return tuple(
        condition for condition in conditions_of(function, block) if condition.text.startswith("self.")
    )


def _is_backward(context: SourceContext, function: int, event: CallEvent) -> bool:
    owner = context.tables.functions[function]
    if "torch.autograd.backward" in context.resolver.called(owner, event.call):
        return True
    return context.amp.is_tensor_backward(owner, event.call)
