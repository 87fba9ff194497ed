"""Regions with autocast switched off that get 16-bit tensors."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.syntax.tables import Assignment, Call, CallEvent, Function, Name, dotted, method_of, render

_BACK_TO_FLOAT32 = frozenset(("float", "double"))


class Fp32IslandMissingFloat(SourceRule):
    """A region with autocast disabled that gets float16 tensors without a cast.

    What it does
    Finds `autocast(enabled=False)` inside an enabled region where tensors of the outer region go into a
    call without `.float()` or any other cast.

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
    Any cast in or before the inner region, tensors from elsewhere, inner regions that are enabled.
    """

    code = "AMP027"
    name = "fp32-island-missing-float"
    level = "warning"
    confidence = "medium"
    sources = (
        "PyTorch Automatic Mixed Precision package, torch.autocast: cast inputs of a nested disabled region",
    )
    triggers = ("enabled=False", "enabled = False", "False")
    requires = ("autocast",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            for region in context.amp.autocasts.regions(function):
                block = region.block
                if region.autocast.enabled is not False or block == 0:
                    continue
                parent = function.blocks[block].parent
                outer = context.amp.autocasts.effective(function, parent)
                if outer is None or outer.block == 0 or outer.autocast.enabled is not True:
                    continue
                if outer.autocast.dtype not in ("float16", "bfloat16"):
                    continue
                found = self._fed(context, function, block, outer.block)
                if found is None:
                    continue
                call, name = found
                yield self.finding(
                    context.location(call.node_id),
                    f"`{name}` comes from {outer.autocast.dtype} autocast and goes into "
                    f"`{render(call.function)}` where autocast is off: it is still {outer.autocast.dtype}.",
                    related=(
                        context.related(outer.node_id, "autocast is on from here"),
                        context.related(region.node_id, "and off from here"),
                    ),
                    evidence={"tensor": name, "call": context.excerpt(call.node_id)},
                    fix=Fix(f"Pass `{name}.float()`."),
                    identity=f"{function.qualified_name}:{name}",
                )

    def _fed(
        self, context: SourceContext, function: Function, block: int, outer: int
    ) -> tuple[Call, str] | None:
        computed: dict[str, bool] = {}
        candidate: tuple[Call, str] | None = None
        for event in function.events:
            if block in function.enclosing(event.block):
                if isinstance(event, CallEvent):
                    _, method = method_of(event.call)
                    if method in (*_BACK_TO_FLOAT32, "to", "type", "type_as"):
                        return None
                    names = [dotted(a.value) for a in event.call.arguments if isinstance(a.value, Name)]
                    fed = [name for name in names if computed.get(name)]
                    calls_model = dotted(event.call.function) in context.casts.models
                    if fed and candidate is None and calls_model:
                        candidate = (event.call, fed[0])
            elif isinstance(event, Assignment) and outer in function.enclosing(event.block):
                value = event.value
                runs_model = isinstance(value, Call) and dotted(value.function) in context.casts.models
                for target in event.targets:
                    computed[target] = runs_model and not event.unpacked and not event.operator
        return candidate
