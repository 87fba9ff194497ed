"""A rule on autocast for a device other than the one that the code runs on."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import (
    Constant,
    Event,
    Finding,
    Fix,
    SourceContext,
    SourceRule,
    Symbol,
    Thing,
    distinct,
    options_of,
)
from tclint.plugin.source import Device


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
        for event, made in distinct(context.autocasts.made):
            problem = _argument(event) if event.name == "torch.autocast" else ""
            inside = None if problem else self._on_gpu(context, made)
            if inside is not None:
                problem = (
                    f"is for the CPU, but the code in it runs on a GPU (`{context.code(inside, 40)}`): "
                    "it stays in float32 there"
                )
            if not problem:
                continue
            yield self.finding(
                context.at(event),
                f"`{context.code(event, 60)}` {problem}.",
                related=(context.also(inside or event, "runs on a GPU" if inside else "autocast"),),
                evidence={"call": context.code(event), "function": event.place.function.qualified_name},
                fix=Fix('Pass the device\'s type as a string: "cuda", or `device.type`.'),
                level="warning" if inside else "error",
                identity=f"{event.place.function.qualified_name}:{context.code(event)}",
            )

    def _on_gpu(self, context: SourceContext, made: Thing) -> Event | None:
        """The first event under a context for the CPU that is certainly on a GPU."""
        facts = context.facts
        if facts.devices_of_autocast(made) != {"cpu"}:
            return None
        for event in context.record.of("to", "forward", "call", "op"):
            if not any(made in set(facts.things(region.context)) for region in event.regions):
                continue
            if facts.is_on(made, event.path) is not False and any(
                context.devices.is_surely_gpu(thing.fields.get("@device"))
                for thing in (*facts.things(event.result), *facts.read_by(event))
            ):
                return event
        return None


def _argument(event: Event) -> str:
    """The mistake in the device of an autocast context; '' if there is none."""
    if "*" in event.arguments or "**" in event.arguments:
        return ""
    given = event.arguments.get("device_type")
    if given is None:
        return "has no device_type: TypeError"
    options = [option for option, _ in options_of(given)]
    if all(isinstance(option, Device) for option in options):
        return "needs a string as device_type, not a torch.device: ValueError"
    wrong = (
        (isinstance(option, Symbol) and option.name.startswith("torch."))  # a dtype, but no name of others
        or (isinstance(option, Constant) and not isinstance(option.value, str))
        for option in options
    )
    return "needs a string as device_type: ValueError" if all(wrong) else ""
