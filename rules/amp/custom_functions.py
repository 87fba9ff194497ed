"""Custom autograd functions under autocast."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule
from tclint.plugin.source import HALVES, Function, Place, Region

_OTHERS = frozenset(
    {"torch", "math", "numpy", "typing", "functools", "builtins", "warnings", "logging", "os"}
)
"""Packages whose functions take tensors of any dtype, or none."""


class CustomFunctionNoCustomFwd(SourceRule):
    """A custom autograd function with compiled code inside, used under autocast without custom_fwd.

    What it does
    Finds a `torch.autograd.Function` whose forward calls an imported module that is not torch, without
    `custom_fwd`, and whose `apply` runs under autocast.

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
    triggers = ("autograd", "Function)")
    program = HALVES
    pattern = re.compile(rb"autograd\.Function|import Function")

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[Function] = set()
        for call in context.record.of("call"):
            applied = self._applied(call)
            found = context.dtypes.autocast(call) if applied is not None else None
            if applied is None or found is None or applied[1].function in seen:
                continue
            seen.add(applied[1].function)
            if any(context.facts.kinds(region.context, "custom_fwd") for region in call.regions):
                context.skip(call, "custom_fwd says which dtypes the function expects")
            elif self._casts(context, call, applied[1].function):
                context.skip(call, "the forward casts what it gets")
            else:
                yield self._report(context, call, found[0], *applied)

    def _applied(self, call: Event) -> tuple[Place, Place] | None:
        """The places of `apply` and of the forward of a custom function that calls code other than
        torch's."""
        if call.subject is not None or call.name.partition(".")[0] in _OTHERS:
            return None
        for caller, inside, forward in zip(call.places, call.places[1:], call.places[2:], strict=False):
            if inside.file.is_library and inside.function.qualified_name == "Function.apply":
                return caller, forward
        return None

    def _casts(self, context: SourceContext, call: Event, forward: Function) -> bool:
        return any(
            made.kind == "to" and "dtype" in made.arguments and forward in [at.function for at in made.places]
            for value in call.arguments.values()
            for made in context.facts.made_by(value)
        )

    def _report(
        self, context: SourceContext, call: Event, region: Region, applied: Place, forward: Place
    ) -> Finding:
        entered, tables = region.entered, forward.file.tables
        assert entered is not None
        owner = tables.functions[forward.function.parent]
        made = replace(call, place=Place(forward.file, owner, owner.node_id), stack=())
        return self.finding(
            context.at(made),
            f"`{owner.name}.forward` calls `{call.callee_name}` and runs under the autocast of "
            f"{context.where(entered, made)} without custom_fwd: its inputs may be float16.",
            related=(context.also(applied, "it runs under autocast here"),),
            evidence={"function": owner.qualified_name, "calls": call.callee_name},
            fix=Fix(
                "Decorate forward with torch.amp.custom_fwd(device_type=..., cast_inputs=...) and backward "
                "with torch.amp.custom_bwd."
            ),
            identity=owner.qualified_name,
        )
