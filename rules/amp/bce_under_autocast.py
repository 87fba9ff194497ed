"""Binary cross entropy on probabilities, which autocast refuses."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.facts.autocasts import Region
from tclint.source.names.queries import any_word, makers, names_in
from tclint.source.syntax.tables import (
    Call,
    Choice,
    Function,
    Literal,
    dotted,
    render,
)
from tclint.source.training.across_files import functions_run_by

_BCE_TOKENS = (b"binary_cross_entropy", b"BCELoss")


class BceUnderAutocast(SourceRule):
    """binary_cross_entropy or BCELoss under CUDA autocast, which raises.

    What it does
    Finds calls of `torch.nn.functional.binary_cross_entropy` and of `torch.nn.BCELoss` objects inside an
    autocast region on CUDA, including in functions and loss modules of the project that are called from
    one, and where the loss is passed in from another file.

    Why it costs
    Autocast on CUDA raises "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss
    are unsafe to autocast", whatever the dtype of the inputs: the gradient of the logarithm of a sigmoid
    in float16 overflows. `binary_cross_entropy_with_logits` computes both in one stable step.

    Example
        with torch.autocast("cuda"):
            loss = torch.nn.functional.binary_cross_entropy(torch.sigmoid(model(x)), y)

    Use instead
        with torch.autocast("cuda"):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)

    When it does not apply
    CPU autocast, which runs it in float32; calls inside `autocast(enabled=False)`; regions that are
    enabled by a parameter which nobody sets; values that were moved to the CPU; functions and methods of
    your own that merely have the name BCELoss.
    """

    code = "AMP007"
    name = "bce-under-autocast"
    level = "error"
    confidence = "high"
    sources = (
        "PyTorch Automatic Mixed Precision package, Prefer binary_cross_entropy_with_logits over "
        "binary_cross_entropy: autocast raises an error for the latter",
    )
    triggers = ("autocast",)
    requires = ()

    def check(self, context: SourceContext) -> Iterator[Finding]:
        seen: set[int] = set()
        for function, event in context.tables.calls:
            region = context.amp.autocasts.effective(function, event.block)
            if region is None or not region.on_cuda or _off_by_default(context, region):
                continue
            for where, function_of_call, call in self._raising(context, function, event.call, 3):
                place = call.node_id if where is context else -event.call.node_id
                if place not in seen:
                    seen.add(place)
                    yield self._report(context, where, function_of_call, call, region, event.call)

    def _raising(
        self, context: SourceContext, function: Function, call: Call, depth: int
    ) -> Iterator[tuple[SourceContext, Function, Call]]:
        """Calls of the loss that a call leads to, itself included, with the file and function they are in."""
        if self._is_bce(context, function, call):
            if not any(".cpu()" in render(argument.value) for argument in call.arguments):
                yield context, function, call
            return
        if depth <= 0:
            return
        for where, helper in functions_run_by(context, function, call, _BCE_TOKENS):
            for event in helper.calls:
                if not where.amp.autocasts.active(helper, event.block):
                    yield from self._raising(where, helper, event.call, depth - 1)

    def _is_bce(self, context: SourceContext, function: Function, call: Call) -> bool:
        if "torch.nn.functional.binary_cross_entropy" in context.resolver.called(function, call):
            return True
        made = call.function
        if isinstance(made, Call):
            return _makes_bce(context, function, made)
        name = dotted(made)
        if not name:
            return False
        origins = [(context, *origin) for origin in context.resolver.origins_of(function, name)]
        if not origins:
            for other, caller, value in context.passed_elsewhere(function, name, "BCELoss"):
                origins.extend(
                    [(other, *origin) for origin in other.resolver.origins_of(caller, dotted(value))]
                    or [(other, caller, value)]
                )
        found = [
            isinstance(value, Call) and _makes_bce(where, scope, value) for where, scope, value in origins
        ]
        return any(found) and (all(found) or _chosen_by_task(context, function, name))

    def _report(
        self,
        context: SourceContext,
        where: SourceContext,
        function: Function,
        call: Call,
        region: Region,
        inside: Call,
    ) -> Finding:
        line = context.location(region.node_id).line
        through = "" if inside.node_id == call.node_id else f" through `{render(inside.function)}(...)`"
        when = "" if region.autocast.enabled else ", where it is enabled"
        related = [context.related(region.node_id, "autocast is on from here")]
        if where is not context:
            related.append(
                where.related(call.node_id, f"`{where.excerpt(call.node_id)}` in {function.qualified_name}")
            )
        return self.finding(
            # What another file does is reported where this one calls it.
            context.location(call.node_id if where is context else inside.node_id),
            f"`{render(call.function)}` runs under the autocast of line {line}{through}{when}: on CUDA it "
            "raises RuntimeError (unsafe to autocast).",
            related=tuple(related),
            evidence={
                "call": where.excerpt(call.node_id),
                "function": function.qualified_name,
                "autocast": context.excerpt(region.autocast.node_id),
                "autocast_line": line,
                "enabled": "always" if region.autocast.enabled else "decided at run time",
            },
            fix=Fix(
                "Use binary_cross_entropy_with_logits (or BCEWithLogitsLoss) on the logits and drop the "
                'sigmoid; or compute the loss in float32 under `torch.autocast("cuda", enabled=False)`.'
            ),
            identity=f"{function.qualified_name}:{where.excerpt(call.node_id)}",
        )


def _off_by_default(context: SourceContext, region: Region) -> bool:
    """The region is on only where a parameter says so whose default is False, and nobody sets it."""
    owner = context.tables.functions[region.function]
    off = {item.name for item in owner.parameters if item.default in (Literal(False), Literal(None))}
    wanted = {condition.text for condition in region.autocast.conditions if condition.holds}
    return region.autocast.enabled is None and any(
        not any(context.resolver.passed(owner, name))
        and not (context.neighbours.known and context.neighbours.mention((f"{name}=",)))
        for name in wanted & off
    )


def _chosen_by_task(context: SourceContext, function: Function, name: str) -> bool:
    """`BCELoss() if binary else CrossEntropyLoss()`: nothing of precision decides which it is."""
    written = [item.value for _, item in context.resolver.definitions(function, name)[0]]
    return (
        len(written) == 1
        and isinstance(written[0], Choice)
        and not any(
            any_word(read, ("amp", "autocast", "half", "fp16", "float16", "mixed", "precision"))
            for read in names_in(written[0].condition)
        )
    )


def _makes_bce(context: SourceContext, function: Function, call: Call) -> bool:
    return any(
        name in ("torch.nn.BCELoss", "torch.nn.modules.loss.BCELoss")
        for made in makers(call)
        for name in context.resolver.called(function, made)
    )
