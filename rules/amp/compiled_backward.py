"""Compiled models whose backward pass runs under autocast."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Call, CallEvent, Finding, Fix, SourceContext, SourceRule, dotted


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
        if "backward_pass_autocast" in context.tables.identifiers:
            return
        compiled: dict[str, int] = {}
        for function, event in context.tables.assignments:
            if not isinstance(event.value, Call):
                continue
            if "torch.compile" in context.resolver.called(function, event.value):
                compiled.update((target, event.value.node_id) for target in event.targets)
        for flow in context.flows:
            for backward in (*flow.scaled, *flow.backwards):
                regions = sorted(backward.origin.regions)[:1] if backward.origin.regions else []
                if not regions or context.amp.autocasts.effective(flow.function, backward.block) is not None:
                    continue
                region = regions[0]
                inside = self._compiled_inside(context, region.function, region.block, compiled)
                if inside is None:
                    continue
                yield self.finding(
                    context.location(compiled[inside]),
                    f"`{inside}` is compiled and runs under autocast, but its backward pass is outside: "
                    "compiled code still runs the backward pass under the forward's autocast.",
                    related=(
                        context.related(region.node_id, "autocast"),
                        context.related(backward.call.node_id, "backward outside"),
                    ),
                    evidence={"model": inside, "compile": context.excerpt(compiled[inside])},
                    fix=Fix('Set `torch._functorch.config.backward_pass_autocast = "off"` before compiling.'),
                    identity=inside,
                )
                return

    def _compiled_inside(
        self, context: SourceContext, index: int, block: int, compiled: dict[str, int]
    ) -> str | None:
        function = context.tables.functions[index]
        for event in function.within(block):
            if isinstance(event, CallEvent):
                name = dotted(event.call.function)
                if name in compiled:
                    return name
        return None
