"""A rule on evaluation that records what gradients would need."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.plugin import Finding, Fix, SourceContext, SourceRule
from tclint.source.names.queries import any_word, is_test_path, names_in
from tclint.source.names.readers import NOTHING
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    CallEvent,
    Expression,
    Function,
    Name,
    Return,
    dotted,
    method_of,
    parts_within,
    render,
)

_GRADIENT_CALLS = ("backward", "grad", "requires_grad_", "step", "train_step", "register_hook", "train")


class EvalWithoutNoGrad(SourceRule):
    """Evaluation that records gradients.

    What it does
    Finds functions that call `model.eval()` and then run the model over a loader, without
    `torch.no_grad()` or `inference_mode()` anywhere around and without a backward call; and results that
    are detached at once, of a model that an optimizer of the file trains: `actor(state).cpu().data`.

    Why it costs
    Autograd keeps every activation that a backward pass could need, until the outputs are gone: evaluation
    takes the memory of training and records a graph that nobody uses. `eval()` only changes dropout and
    batch norm.

    Example
        model.eval()
        for images, labels in loader:
            correct += (model(images).argmax(1) == labels).sum()

    Use instead
        model.eval()
        with torch.no_grad():
            for images, labels in loader:
                correct += (model(images).argmax(1) == labels).sum()

    When it does not apply
    Adversarial attacks, saliency and test-time training, which need gradients; functions that a caller
    runs under no_grad, or that are called from other files; files that freeze parameters.
    """

    code = "RUN016"
    name = "eval-without-no-grad"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Performance Tuning Guide, Disable gradient calculation for validation or inference: "
        "no_grad saves memory and time",
    )
    triggers = (".eval()", ".parameters()")
    # A loop whose header speaks of data, or a result that is detached at once.
    pattern = re.compile(
        rb"\bfor\b.{0,200}?\bin\b.{0,200}?(?:loader|dataset|batches|data)|\.(?:detach\(\)|data\b)",
        re.DOTALL | re.IGNORECASE,
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        identifiers = context.tables.identifiers
        if is_test_path(context.path) or context.amp.framework or "set_grad_enabled" in identifiers:
            return
        if program.words & {"attack", "adversarial", "saliency", "gradcam", "tta", "volatile", "captum"}:
            return
        yield from self._thrown_away(context)
        for function, event, position in program.methods("eval"):
            receiver, _ = method_of(event.call)
            name = dotted(receiver) if receiver is not None else ""
            if not name or event.call.arguments or not program.unconditional(function, event.block):
                continue
            if not _always_called_here(context, function):
                continue
            call = _runs_model(context, function, name, position)
            if call is None:
                continue
            yield self.finding(
                context.location(call.node_id),
                f"`{context.excerpt(call.node_id)}` evaluates (`{name}.eval()` on line "
                f"{context.location(event.call.node_id).line}) while autograd records: activations are "
                "kept for "
                "a backward that never comes.",
                related=(context.related(event.call.node_id, "evaluation starts here"),),
                evidence={"model": name, "function": function.qualified_name},
                fix=Fix("Decorate the function with `@torch.no_grad()`, or wrap the loop in it."),
                identity=f"{function.qualified_name}:{name}",
            )

    def _thrown_away(self, context: SourceContext) -> Iterator[Finding]:
        """`self.actor(state).cpu().data.numpy()` of a model that is trained."""
        if context.program.words & {"freeze", "frozen", "toggle"} or _freezes(context):
            return  # what is frozen records nothing
        trained = trained_here(context)
        seen: set[tuple[int, str]] = set()
        dropped: dict[int, set[int]] = {}
        for function, event in context.tables.calls:
            call = event.call
            name = dotted(call.function)
            if name.rpartition(".")[0] in trained:
                name = name.rpartition(".")[0]  # `self.policy.sample(state)`
            if name not in trained or not call.arguments or (function.index, name) in seen:
                continue
            if function.index not in dropped:
                dropped[function.index] = _dropped(function)
            if call.node_id not in dropped[function.index] or not context.amp.gradients_on(
                function, event.block
            ):
                continue
            here = [(context, *call) for call in context.resolver.callers.get(function.index, ())]
            if any(
                not where.amp.gradients_on(caller, outer.block)
                for where, caller, outer in here or context.callers_elsewhere(function)
            ):
                continue
            seen.add((function.index, name))
            yield self.finding(
                context.location(call.node_id),
                f"`{context.excerpt(call.node_id)}` runs while autograd records, and the result is detached "
                "at once: activations are kept for a backward that never comes.",
                evidence={"model": name, "function": function.qualified_name},
                fix=Fix("Compute it under `torch.no_grad()`."),
                identity=f"{function.qualified_name}:{name}",
            )


_MOVES = ("cpu", "cuda", "to", "squeeze", "view", "reshape", "flatten", "float")
"""Methods of tensors between a model's call and `.data`."""


def trained_here(context: SourceContext) -> set[str]:
    """Names whose parameters an optimizer of torch.optim gets."""
    found = set()
    for function, event in context.tables.calls:
        if any(name.startswith("torch.optim.") for name in context.resolver.called(function, event.call)):
            for argument in event.call.arguments:
                receiver, method = (
                    method_of(argument.value) if isinstance(argument.value, Call) else (None, "")
                )
                if method == "parameters" and receiver is not None:
                    found.add(dotted(receiver))
    return found - {""}


def _freezes(context: SourceContext) -> bool:
    """`p.requires_grad = False`, `model.requires_grad_(False)`, and the same to undo it."""
    if any(True for _ in context.program.methods("requires_grad_")):
        return True
    return any(
        target.endswith(".requires_grad")
        for _, event in context.tables.assignments
        for target in event.targets
    )


def _dropped(function: Function) -> set[int]:
    """Node ids of calls whose result is detached before anything else reads it."""
    found = set()
    for event in function.events:
        if not isinstance(event, CallEvent | Assignment | Return):
            continue
        for whole in parts_within(event.call if isinstance(event, CallEvent) else event.value):
            if isinstance(whole, Attribute) and whole.name == "data":
                inner: Expression = whole.value
            elif isinstance(whole, Call) and method_of(whole)[1] == "detach":
                inner = method_of(whole)[0] or NOTHING
            else:
                continue
            while isinstance(inner, Call) and method_of(inner)[1] in _MOVES:
                inner = method_of(inner)[0] or NOTHING
            if isinstance(inner, Call):
                found.add(inner.node_id)
    return found | set(_dropped_by_name(function))


def _dropped_by_name(function: Function) -> Iterator[int]:
    """`action = self.actor(state)` of which nothing but `action.detach()` and `action.data` is read."""
    values = [
        event.call if isinstance(event, CallEvent) else event.value
        for event in function.events
        if isinstance(event, CallEvent | Assignment | Return)
    ]
    read: dict[str, set[str]] = {}
    for whole in values:
        for part in parts_within(whole):
            if isinstance(part, Name):
                root, _, rest = part.dotted.partition(".")
                read.setdefault(root, set()).add(rest.partition(".")[0])
    for event in function.assignments:
        value: Expression = event.value
        while isinstance(value, Call) and method_of(value)[1] in _MOVES:
            value = method_of(value)[0] or NOTHING
        used = set[str]().union(*(read.get(target, ()) for target in event.targets))
        if isinstance(value, Call) and used and used <= {"detach", "data"} and not event.operator:
            yield value.node_id


def _takes_gradients(function: Function, loop: int) -> bool:
    """The loop goes backward, asks for gradients or trains."""
    for event in function.events:
        if not isinstance(event, CallEvent | Assignment) or loop not in function.enclosing(event.block):
            continue
        if isinstance(event, CallEvent):
            if method_of(event.call)[1] in _GRADIENT_CALLS:
                return True
        elif any(
            name.endswith((".requires_grad", ".grad")) for name in (*names_in(event.value), *event.targets)
        ):
            return True
    return False


def _always_called_here(context: SourceContext, function: Function) -> bool:
    """The module's own code, or a function that this file calls, never under no_grad."""
    if not function.index:
        return True
    if function.kind != "function" or not context.amp.gradients_on(function, 0):
        return False
    callers = context.resolver.callers.get(function.index, [])
    if not callers:
        return False
    for caller, event in callers:
        if not context.amp.gradients_on(caller, event.block):
            return False
        outer = context.resolver.callers.get(caller.index, [])
        if any(not context.amp.gradients_on(second, call.block) for second, call in outer):
            return False
    return True


def _runs_model(context: SourceContext, function: Function, name: str, position: int) -> Call | None:
    """The first call of the model in a loop over data after it was set to evaluation."""
    program = context.program
    loops = {
        loop
        for loop, _, header in program.loops_of(function)
        if any_word(render(header.value), ("loader", "dataset", "batches", "data"))
    }
    for event in function.events[position + 1 :]:
        if not isinstance(event, CallEvent):
            continue
        if render(event.call.function) == f"{name}.train":
            return None
        if dotted(event.call.function) != name or not event.call.arguments:
            continue
        around = [loop for loop in function.enclosing(event.block) if loop in loops]
        if not around or _takes_gradients(function, around[-1]):
            continue
        return event.call if context.amp.gradients_on(function, event.block) else None
    return None
