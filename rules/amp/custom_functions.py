"""Custom autograd functions under autocast."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.syntax.tables import Call, Function, dotted, method_of, render


class CustomFunctionNoCustomFwd(SourceRule):
    """A custom autograd function with compiled code inside, used under autocast without custom_fwd.

    What it does
    Finds a `torch.autograd.Function` whose forward calls an imported module that is not torch, without
    `custom_fwd`, and whose `apply` runs in an autocast region of the same file.

    Why it costs
    Under autocast its inputs may be float16 where the extension expects float32 (or the other way round):
    it raises or reads garbage. `torch.amp.custom_fwd` declares what the function expects, and
    `custom_bwd` runs its backward in the same state.

    Example
        class Pool(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return pool_cuda.forward(x)

    Use instead
        class Pool(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x):
                return pool_cuda.forward(x)

    When it does not apply
    Functions made of torch ops only, casts in the forward itself, regions with autocast disabled.
    """

    code = "AMP025"
    name = "custom-function-no-custom-fwd"
    level = "warning"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision examples, Autocast and Custom Autograd Functions: custom_fwd "
        "and custom_bwd",
    )
    triggers = ("Function)",)
    requires = ("autocast", ".apply(", "forward")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        for owner in context.tables.functions:
            if owner.kind != "class":
                continue
            outer = context.tables.functions[owner.parent]
            bases = [name for base in owner.bases for name in context.resolver.qualified(outer, dotted(base))]
            if not any(
                name in ("torch.autograd.Function", "torch.autograd.function.Function") for name in bases
            ):
                continue
            forwards = context.tables.children.get(owner.index, {}).get("forward", ())
            if len(forwards) != 1:
                continue
            forward = context.tables.functions[forwards[0]]
            if any("custom_fwd" in render(decorator) for decorator in forward.decorators):
                continue
            foreign = self._foreign(context, forward)
            used = self._used(context, owner)
            if foreign is None or used is None:
                continue
            call, line = used
            yield self.finding(
                context.location(owner.node_id),
                f"`{owner.name}.forward` calls `{render(foreign.function)}` and runs under the autocast of "
                f"line {line} without custom_fwd: its inputs may be float16.",
                related=(context.related(call.node_id, "it runs under autocast here"),),
                evidence={"function": owner.qualified_name, "calls": render(foreign.function)},
                fix=Fix(
                    "Decorate forward with torch.amp.custom_fwd(device_type=..., cast_inputs=...) and "
                    "backward with torch.amp.custom_bwd."
                ),
                identity=owner.qualified_name,
            )

    def _foreign(self, context: SourceContext, forward: Function) -> Call | None:
        casts = {"float", "half", "to", "type", "type_as"}
        found = None
        for event in forward.calls:
            _, method = method_of(event.call)
            if method in casts:
                return None
            called = context.resolver.called(forward, event.call)
            roots = {name.lstrip(".").partition(".")[0] for name in called}
            if called and not roots & {"torch", "math", "numpy", "typing", "functools"}:
                found = found or event.call
        return found

    def _used(self, context: SourceContext, owner: Function) -> tuple[Call, int] | None:
        for function, event in context.tables.calls:
            if dotted(event.call.function).endswith(f"{owner.name}.apply"):
                region = context.amp.autocasts.effective(function, event.block)
                if region is not None:
                    return event.call, context.location(region.node_id).line
        return None
