"""What several rules on scaled steps ask about a function's scaler calls."""

from __future__ import annotations

import re

from tclint.source.context import SourceContext
from tclint.source.facts.manual_loss_scaling import unscales_gradients
from tclint.source.facts.scaling_view import Op, View
from tclint.source.names.queries import Condition
from tclint.source.syntax.tables import Call, Expression, Function, Literal, dotted, method_of, render

_NAME = re.compile(r"[A-Za-z_][\w.]*")


def unscales_by_hand(context: SourceContext) -> bool:
    """It computes with the scale, or divides gradients itself: `clip(..., limit * scaler.get_scale())`."""
    return (
        bool({"_scale", "inv_scale"} & context.tables.identifiers)
        or context.amp.computes_with_scale
        or unscales_gradients(context.tables)
    )


def belongs_to(context: SourceContext, function: Function, scaler: str, owner: str) -> bool:
    """`scaler = optimizer.scaler`: the optimizer that has it unscales in its own `step`."""
    written = [dotted(item.value) for _, item in context.resolver.definitions(function, scaler)[0]]
    return any(name.startswith(f"{owner}.") for name in (scaler, *written))


_SCALING = (b"scaler", b"Scaler", b"scale_loss", b"loss_scale")


def scales_itself(context: SourceContext, function: Function, name: str) -> bool:
    """Whether an object is made by code of the project that speaks of loss scaling: an optimizer that
    unscales in its own `step`, a function that returns a scaled loss."""
    for scope, value in context.resolver.origins_of(function, name):
        call: Expression = value
        while isinstance(call, Call):
            for maker in context.resolver.local_functions(scope, call.function):
                own = (maker, *context.values.members(maker)) if maker.kind == "class" else (maker,)
                if any(_speaks_of_scaling(member) for member in own):
                    return True
            called = dotted(call.function)
            for qualified in context.resolver.qualified(scope, called) if called else ():
                if not qualified.startswith("torch.") and context.project.definition(qualified, _SCALING):
                    return True
            receiver, _ = method_of(call)
            call = receiver if receiver is not None else Literal(None)
    return False


def _speaks_of_scaling(function: Function) -> bool:
    return any(
        word in render(event.call.function).lower()
        for event in function.calls
        for word in ("scaler", "scale_loss", "loss_scale")
    )


def reads_of_round(condition: Condition, changing: set[str]) -> bool:
    """Whether a test can come out differently from round to round of a loop that changes these names."""
    return "%" in condition.text or any(
        name in changing or name.partition(".")[0] in changing for name in _NAME.findall(condition.text)
    )


def either_apart(view: View, one: Op, other: Op) -> bool:
    return view.mutually_exclusive(one, other) or view.mutually_exclusive(other, one)


def scaler_evidence(context: SourceContext, view: View, **ops: Op | None) -> dict[str, object]:
    evidence: dict[str, object] = {"function": view.function.qualified_name}
    scaler = ""
    for role, op in ops.items():
        if op is not None:
            evidence[role] = context.excerpt(op.node_id)
            evidence[f"{role}_line"] = context.location(op.node_id).line
            scaler = scaler or op.scaler
    made, _ = context.scaling.origins(view.function, scaler)
    if made:
        evidence["scaler"] = context.excerpt(made[0].node_id)
        evidence["enabled"] = {True: "always", None: "decided at run time"}.get(made[0].enabled, "never")
    else:
        evidence["scaler"] = "comes from elsewhere"
    return evidence


def scaled_by(context: SourceContext, view: View, step: Op) -> Op | None:
    """The backward pass whose scaled gradients a plain step applies as they are."""
    scaled = next(iter(view.before(step, "scaled_backward")), None)
    if scaled is None or context.scaling.is_off(view, scaled) or view.before(step, "escape"):
        return None
    for other in view.of("backward", "other_backward"):
        # The optimizer may own what this one computed.
        if not either_apart(view, other, scaled) and not view.mutually_exclusive(other, step):
            return None
    again = stepped_before(view, step)
    unscaled = [
        op
        for op in view.before(step, "unscale", "rescale")
        if not _of_another(context, view, op, step) and not (again and op.optimizer == step.optimizer)
    ]
    if unscaled or view.decided_by_precision(step, scaled):
        return None
    for other in view.of("scaler_step"):
        if other.optimizer != step.optimizer:
            continue
        # `optimizer.step() if scaler is None else scaler.step(optimizer)` is one statement.
        one_statement = context.location(other.node_id).line == context.location(step.node_id).line
        # Not where the scaled pass is in the branch without the scaler's step as well.
        if one_statement or (either_apart(view, other, step) and not either_apart(view, other, scaled)):
            return None
    return scaled


def stepped_before(view: View, step: Op) -> Op | None:
    """`scaler.step(optimizer)` that a plain step of the same optimizer repeats."""
    for other in view.before(step, "scaler_step"):
        if other.optimizer == step.optimizer and not view.between(other, step, "scaled_backward", "backward"):
            return other
    return None


def _of_another(context: SourceContext, view: View, unscale: Op, step: Op) -> bool:
    """`scaler.unscale_(dense)`, `scaler.step(dense)`, `sparse.step()`: two optimizers, each under a name of
    its own, and the one that is stepped is PyTorch's."""
    one, other = unscale.optimizer, step.optimizer
    if unscale.kind != "unscale" or not (_NAME.fullmatch(one) and _NAME.fullmatch(other)):
        return False
    if one == other or one.startswith(f"{other}.") or other.startswith(f"{one}."):
        return False
    stepped = any(op.optimizer == one for op in view.of("scaler_step"))
    return stepped and context.amp.is_of_torch_optim(view.function, other)
