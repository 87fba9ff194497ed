"""Autocast for another device than the one that the code runs on."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.syntax.tables import Call, CallEvent, Function, Literal, dotted, method_of

_GENERIC = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")


class AutocastDeviceMismatch(SourceRule):
    """Autocast without a device type, with something else in its place, or for the CPU around GPU code.

    What it does
    Finds `torch.autocast()` without `device_type`; with a `torch.device`, a bool or a dtype in its place;
    and `torch.autocast("cpu")` around code that moves its data to a GPU.

    Why it costs
    Without `device_type` torch raises TypeError; for anything but a string, ValueError. A CPU region
    leaves GPU ops in float32, without the 16-bit Tensor Core rate, and nothing warns of it.

    Example
        device = torch.device("cuda")
        with torch.autocast(device):
            loss = model(batch)

    Use instead
        with torch.autocast(device.type):
            loss = model(batch)

    When it does not apply
    `device.type`, a string chosen at run time, torch.cuda.amp.autocast (whose first parameter is
    `enabled`).
    """

    code = "AMP022"
    name = "autocast-device-mismatch"
    level = "warning"
    confidence = "high"
    sources = ("PyTorch Automatic Mixed Precision package, torch.autocast: its parameters",)
    triggers = ("autocast",)
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for function in context.tables.functions:
            for event in function.calls:
                if _is_generic(context, function, event.call):
                    problem = self._argument(context, function, event.call)
                    if problem is not None:
                        yield self._report(context, function, event.call.node_id, *problem)
            for region in context.amp.autocasts.regions(function):
                if (
                    region.autocast.devices != ("cpu",)
                    or region.autocast.enabled is False
                    or region.block == 0
                ):
                    continue
                moved = self._moved(context, function, region.block)
                if moved is not None:
                    yield self._report(
                        context,
                        function,
                        region.autocast.node_id,
                        "is for the CPU, but the code in it runs on a GPU "
                        f"(`{context.excerpt(moved.node_id, 40)}`): it stays in float32 there",
                        "warning",
                    )

    def _argument(self, context: SourceContext, function: Function, call: Call) -> tuple[str, str] | None:
        if any(argument.star for argument in call.arguments):
            return None
        given = next((a.value for a in call.arguments if a.keyword == "device_type"), None)
        if given is None:
            given = next((a.value for a in call.arguments if not a.keyword), None)
        if given is None:
            return "has no device_type: TypeError", "error"
        if isinstance(given, Literal):
            return (
                None
                if isinstance(given.value, str)
                else ("needs a string as device_type: ValueError", "error")
            )
        if isinstance(given, Call) and "torch.device" in context.resolver.called(function, given):
            return "needs a string as device_type, not a torch.device: ValueError", "error"
        name = dotted(given)
        values = list(context.resolver.origins_of(function, name)) if name else []
        complete = context.resolver.definitions(function, name)[1] if name else False
        if (
            values
            and complete
            and all(
                isinstance(value, Call) and "torch.device" in context.resolver.called(scope, value)
                for scope, value in values
            )
        ):
            return f"needs a string as device_type; `{name}` is a torch.device: ValueError", "error"
        return None

    def _moved(self, context: SourceContext, function: Function, block: int) -> Call | None:
        for event in function.within(block):
            if isinstance(event, CallEvent):
                receiver, method = method_of(event.call)
                if method == "cuda" and receiver is not None and dotted(receiver) != "torch":
                    return event.call
                if method == "to" and event.call.arguments:
                    possible = context.resolver.evaluate(function, event.call.arguments[0].value)
                    if possible.certain and str(possible.values[0]).startswith("cuda"):
                        return event.call
        return None

    def _report(
        self, context: SourceContext, function: Function, node_id: int, problem: str, level: str
    ) -> Finding:
        return self.finding(
            context.location(node_id),
            f"`{context.excerpt(node_id, 60)}` {problem}.",
            related=(context.related(node_id, "autocast"),),
            evidence={"call": context.excerpt(node_id), "function": function.qualified_name},
            fix=Fix('Pass the device\'s type as a string: "cuda", or `device.type`.'),
            level="error" if level == "error" else "warning",
            identity=f"{function.qualified_name}:{context.excerpt(node_id)}",
        )


def _is_generic(context: SourceContext, function: Function, call: Call) -> bool:
    called = context.resolver.called(function, call)
    return bool(called) and all(name in _GENERIC for name in called)
