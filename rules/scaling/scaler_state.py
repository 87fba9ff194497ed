"""Checkpoints without the loss scaler's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.plugin import Finding, Fix, Location, Related, SourceContext, SourceRule
from tclint.source.syntax.tables import Call, Collection, Function, Literal, dotted, method_of, render


class ScalerStateNotSaved(SourceRule):
    """A checkpoint with the optimizer's state but without the scaler's.

    What it does
    Finds `torch.save`, or a function of the project named for saving, with a dict that holds an
    optimizer's `state_dict()`, in a script that loads checkpoints too and that makes and uses a
    GradScaler without ever asking for its `state_dict()`.

    Why it costs
    A resumed run starts with the scale of 65536 instead of the one it had reached: its first steps
    overflow and are skipped, and it does not reproduce the interrupted run bit for bit.

    Example
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

    Use instead
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scaler": scaler.state_dict()}, path)

    When it does not apply
    Files that save weights only or never resume, scalers that are disabled, checkpoints made elsewhere,
    frameworks.
    """

    code = "AMP018"
    name = "scaler-state-not-saved"
    level = "info"
    confidence = "high"
    sources = ("PyTorch Automatic Mixed Precision recipe, Saving/Resuming: save the scaler's state as well",)
    triggers = ("GradScaler",)
    requires = ("save",)

    def check(self, context: SourceContext) -> Iterator[Finding]:
        made = [item for item in context.scaling.made if item.enabled is not False]
        if not made or context.amp.framework:
            return
        if not any(view.of("scaled_backward") for view in context.scaling.views):
            return
        saves: list[tuple[Call, _State]] = []
        resumes = False
        for function, event in context.tables.calls:
            receiver, method = method_of(event.call)
            text = render(receiver).lower() if receiver is not None else ""
            if method in ("state_dict", "load_state_dict") and ("scal" in text or "amp" in text):
                return
            resumes = resumes or (method == "load_state_dict" and "opt" in text) or _loads(event.call)
            if "save" in method:
                state = _saved(context, function, event.call)
                if state is not None:
                    saves.append((event.call, state))
        if not saves or not resumes:
            return
        save, state = saves[0]
        yield self.finding(
            context.location(save.node_id),
            f"The checkpoint holds `{_shown(state)}` but not the GradScaler's state: a resumed run starts "
            "with its initial scale of 65536.",
            related=(
                context.related(made[0].node_id, "the scaler"),
                Related(state.where, "the optimizer's state is saved here"),
            ),
            evidence={"save": context.excerpt(save.node_id), "scaler": context.excerpt(made[0].node_id)},
            fix=Fix("Save `scaler.state_dict()` as well and load it when resuming."),
            identity=context.excerpt(save.node_id),
        )


_HELPER = (b"torch.save", b"load_state_dict")


class _State(NamedTuple):
    """`optimizer.state_dict()`, and where it is written."""

    call: Call
    where: Location


def _shown(state: _State) -> str:
    return render(state.call)


def _saved(context: SourceContext, function: Function, call: Call) -> _State | None:
    """The optimizer's state in what is saved: by torch.save, by a function that is named for it, or by one
    of another file that gets the optimizer."""
    for argument in call.arguments[:2]:
        for _, value in (
            *context.resolver.origins_of(function, dotted(argument.value)),
            (function, argument.value),
        ):
            state = _optimizer_state(value)
            if state is not None:
                return _State(state, context.location(state.node_id))
    if not _gets_optimizer(call):
        return None
    for other, helper in context.definitions_of(function, call.function, _HELPER):
        if other is context or helper.kind != "function":
            continue
        if any("scal" in parameter.name.lower() for parameter in helper.parameters):
            return None
        for event in helper.calls:
            if "torch.save" in other.resolver.called(helper, event.call) and event.call.arguments:
                state = _optimizer_state(event.call.arguments[0].value)
                if state is not None:
                    return _State(state, other.location(state.node_id))
    return None


def _gets_optimizer(call: Call) -> bool:
    return any("opt" in dotted(argument.value).lower() for argument in call.arguments)


def _loads(call: Call) -> bool:
    """`load_checkpoint(path, model, optimizer)`."""
    name = method_of(call)[1].lower()
    return ("load" in name or "resume" in name) and _gets_optimizer(call)


def _optimizer_state(value: object) -> Call | None:
    """The call of an optimizer's state_dict in a dict display or a call of dict; None without one, or with
    anything that may hold the scaler's."""
    if isinstance(value, Collection) and value.kind == "dict":
        if any(key is None for key in value.keys) or any(
            isinstance(key, Literal) and ("scal" in str(key.value).lower() or "amp" in str(key.value).lower())
            for key in value.keys
        ):
            return None
        items = value.items
    elif isinstance(value, Call) and dotted(value.function) == "dict":
        if any(a.star or "scal" in a.keyword or "amp" in a.keyword for a in value.arguments):
            return None
        items = tuple(argument.value for argument in value.arguments)
    else:
        return None
    for item in items:
        if isinstance(item, Call):
            receiver, method = method_of(item)
            if method == "state_dict" and receiver is not None and "opt" in render(receiver).lower():
                return item
    return None
