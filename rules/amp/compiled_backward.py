"""Compiled models whose backward pass runs under autocast."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.run.values import Event, Thing

_SETTING = "torch._functorch.config.backward_pass_autocast"


class CompileBackwardAutocast(SourceRule):
    """A compiled model under autocast whose backward runs outside, with the default backward setting.

    What it does
    Finds models under `torch.compile` that run under autocast while their backward pass runs outside the
    region, where nothing sets `torch._functorch.config.backward_pass_autocast`. Off by default: apart
    from this setting the pattern is what the documentation recommends, and most programs see no
    difference.

    Why it costs
    torch.compile traces the backward pass together with the forward pass, by default under the same
    autocast. Eager mode runs it without: results differ wherever the backward pass has ops of its own.

    Example
        model = torch.compile(model)
        with torch.autocast("cuda"):
            loss = model(batch)
        loss.backward()

    Use instead
        torch._functorch.config.backward_pass_autocast = "off"
        model = torch.compile(model)

    When it does not apply
    Backward inside the region, models that are not compiled, the setting given anywhere in the file.
    """

    code = "AMP024"
    name = "compile-backward-autocast"
    level = "warning"
    confidence = "low"
    enabled_by_default = False
    sources = (
        "PyTorch Automatic Mixed Precision package, torch.autocast: the warning on torch.compile",
        "PyTorch 2.13 torch/_functorch/config.py: backward_pass_autocast and its default",
    )
    triggers = ("compile",)
    requires = ("autocast", ".backward(", "torch")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        facts, autocasts = context.facts, context.autocasts
        compiled: dict[Thing, Event] = {}
        for event in context.record.of("wrap"):
            if event.name == "torch.compile":
                compiled.update((thing, event) for thing in facts.things(event.first))
        if not compiled or any(event.name == _SETTING for event in context.record.of("set")):
            return
        for backward in context.gradients.backwards:
            if autocasts.around(backward.event) is not None:
                continue
            for region, _, event in autocasts.origins(backward.loss):
                wrapped = next((compiled[it] for it in facts.things(event.subject) if it in compiled), None)
                if wrapped is None:
                    continue
                name = event.name
                yield self.finding(
                    context.at(wrapped),
                    f"`{name}` is compiled and runs under autocast, but its backward pass is outside: "
                    "compiled code still runs the backward pass under the forward's autocast.",
                    related=(
                        context.also(region.place, "autocast"),
                        context.also(backward.event, "backward outside"),
                    ),
                    evidence={"model": name, "compile": context.code(wrapped)},
                    fix=Fix('Set `torch._functorch.config.backward_pass_autocast = "off"` before compiling.'),
                    identity=name,
                )
                return
