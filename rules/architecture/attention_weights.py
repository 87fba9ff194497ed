"""A rule on nn.MultiheadAttention returning weights that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import contains, has_star, is_test_path, keyword, names_in, unplaced
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Literal,
    Subscript,
    dotted,
    render,
)


class MhaNeedWeights(SourceRule):
    """MultiheadAttention computes weights that nobody uses.

    What it does
    Finds calls of an `nn.MultiheadAttention` whose second result is thrown away (`out, _ = attn(...)`,
    `attn(...)[0]`) without `need_weights=False`.

    Why it costs
    `need_weights` is True by default. The layer then computes softmax(QK^T) in memory and averages it over
    the heads, instead of calling scaled_dot_product_attention, whose fused kernels never write the matrix.

    Example
        out, _ = self.attn(x, x, x)

    Use instead
        out, _ = self.attn(x, x, x, need_weights=False)

    When it does not apply
    Weights that are used; arguments through `**kwargs`.
    """

    code = "ARC017"
    name = "mha-need-weights"
    level = "info"
    confidence = "high"
    sources = (
        "PyTorch torch.nn.MultiheadAttention: need_weights",
        "PyTorch 2.13 torch/nn/functional.py, multi_head_attention_forward: need_weights takes the path "
        "without scaled_dot_product_attention",
    )
    triggers = ("MultiheadAttention",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        if is_test_path(context.path):
            return
        for function in context.tables.functions:
            for event in function.events:
                value = getattr(event, "value", None)
                call = _thrown_weights(function, event)
                if call is None or value is None or has_star(call):
                    continue
                if keyword(call, "need_weights", 4) is not None or not _is_attention(context, function, call):
                    continue
                name = render(call.function)
                yield self.finding(
                    context.location(call.node_id),
                    f"`{name}` computes attention weights that are thrown away, and so misses the fused "
                    "attention kernels.",
                    evidence={"layer": name, "need_weights": True, "function": function.qualified_name},
                    fix=Fix("Pass need_weights=False."),
                    identity=f"{function.qualified_name}:{name}",
                )


def _thrown_weights(function: Function, event: object) -> Call | None:
    """The call in `out, _ = call(...)` or `call(...)[0]`."""
    value = getattr(event, "value", None)
    if isinstance(event, Assignment) and event.unpacked and len(event.targets) == 2:
        second = event.targets[1]
        if isinstance(value, Call) and second.startswith("_") and not _read_later(function, second):
            return value
        return None
    found: list[Call] = []

    def look(part: Expression) -> bool:
        if isinstance(part, Subscript) and part.key == Literal(0) and isinstance(part.value, Call):
            found.append(part.value)
        return False

    if value is not None and not isinstance(event, CallEvent):
        contains(value, look)
    return found[0] if found else None


def _read_later(function: Function, name: str) -> bool:
    return name != "_" and any(
        name in names_in(event.value) for event in function.events if isinstance(event, Assignment)
    )


def _is_attention(context: SourceContext, function: Function, call: Call) -> bool:
    name = dotted(call.function)
    made = context.resolver.definitions(function, name)[0] if name else []
    return bool(made) and all(
        isinstance(item.value, Call)
        and "torch.nn.MultiheadAttention" in context.resolver.called(scope, unplaced(item.value))  # type: ignore[arg-type]
        for scope, item in made
    )
