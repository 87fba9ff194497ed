"""A rule on evaluation that records gradients."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.plugin import Event, Finding, Fix, SourceContext, SourceRule, distinct
from tclint.plugin.source import TRAINS


class EvalWithoutNoGrad(SourceRule):
    """Evaluation that records gradients.

    What it does
    Finds models that run over data after `model.eval()`, without `torch.no_grad()` or `inference_mode()`
    around and without a backward call; and results that are detached at once, of a model that an optimizer
    of the program trains: `actor(state).cpu().data`.

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
    runs under no_grad, or that are called only from files which tclint does not read; frozen parameters.
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
    program = TRAINS

    def check(self, context: SourceContext) -> Iterator[Finding]:
        recording = context.recording
        seen: set[tuple[object, object]] = set()
        for call, evaluation in distinct(recording.evaluating()):
            key = (call.place.function, call.subject)
            if key in seen or not context.concerns(call):
                continue
            seen.add(key)
            name = evaluation.receiver_name or "model"
            yield self.finding(
                context.at(call),
                f"`{context.code(call)}` evaluates (`{name}.eval()` on {context.where(evaluation, call)}) "
                "while autograd records: activations are kept for a backward that never comes.",
                related=(context.also(evaluation, "evaluation starts here"),),
                evidence={"model": name, "function": call.place.function.qualified_name},
                fix=Fix("Decorate the function with `@torch.no_grad()`, or wrap the loop in it."),
                identity=f"{call.place.function.qualified_name}:{name}",
            )
        for call in _first_of_each(recording.dropped()):
            if not context.concerns(call):
                continue
            name = context.code(call).partition("(")[0]
            yield self.finding(
                context.at(call),
                f"`{context.code(call)}` runs while autograd records, and the result is detached at once: "
                "activations are kept for a backward that never comes.",
                evidence={"model": name, "function": call.place.function.qualified_name},
                fix=Fix("Compute it under `torch.no_grad()`."),
                identity=f"{call.place.function.qualified_name}:{name}",
            )


def _first_of_each(calls: Iterator[Event]) -> Iterator[Event]:
    """The first call of each network in each function."""
    seen: set[tuple[object, object]] = set()
    for call in distinct(calls):
        key = (call.place.function, call.subject)
        if key not in seen:
            seen.add(key)
            yield call
