"""A rule on evaluation that records what gradients would need."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.core.finding import Finding, Fix
from tclint.source.context import SourceContext
from tclint.source.names.queries import any_word, is_test_path, names_in
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import Assignment, Call, CallEvent, Function, dotted, method_of, render

_GRADIENT_CALLS = ("backward", "grad", "requires_grad_", "step", "train_step", "register_hook", "train")


class EvalWithoutNoGrad(SourceRule):
    """Evaluation that records gradients.

    What it does
    Finds functions that call `model.eval()` and then run the model over a loader, without `torch.no_grad()`
    or `inference_mode()` anywhere around and without a backward call.

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
    Adversarial attacks, saliency, test-time training, which take gradients; functions that a caller runs
    under no_grad, or that are called from other files.

    References
    PyTorch, Performance Tuning Guide, "Disable gradient calculation for validation or inference".
    """

    code = "RUN016"
    name = "eval-without-no-grad"
    since = "0.1.0"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch recipes, Performance Tuning Guide: Disable gradient calculation for validation or inference",
    )
    triggers = (".eval()",)
    # A loop whose header speaks of data.
    pattern = re.compile(
        rb"\bfor\b.{0,200}?\bin\b.{0,200}?(?:loader|dataset|batches|data)", re.DOTALL | re.IGNORECASE
    )

    def check(self, context: SourceContext) -> Iterator[Finding]:
        program = context.program
        identifiers = context.tables.identifiers
        if is_test_path(context.path) or context.amp.framework or "set_grad_enabled" in identifiers:
            return
        if program.words & {"attack", "adversarial", "saliency", "gradcam", "tta", "volatile", "captum"}:
            return
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


RULES = (EvalWithoutNoGrad,)


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
