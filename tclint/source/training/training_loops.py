"""Functions that train, by what they do themselves and by what they hand to others."""

from __future__ import annotations

from tclint.source.context import SourceContext
from tclint.source.facts.program import steps_by_itself
from tclint.source.syntax.tables import method_of


def functions_that_train(context: SourceContext) -> set[int]:
    """Functions that go backward and step an optimizer, clear gradients for it, or hand the loss and the
    optimizer to one call that does: `loss_scaler(loss, optimizer)`."""
    found = {item.function.index for item in context.program.trainings}
    for function, event in context.tables.calls:
        if method_of(event.call)[1] == "zero_grad" or steps_by_itself(event.call):
            found.add(function.index)
    return found
