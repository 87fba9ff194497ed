"""Functions that train, by what they do themselves and by what they hand to others."""

from __future__ import annotations

from tclint.source.context import SourceContext
from tclint.source.syntax.tables import Call, CallEvent, dotted, method_of


def functions_that_train(context: SourceContext) -> set[int]:
    """Functions that go backward and step an optimizer, clear gradients for it, or hand the loss and the
    optimizer to one call that does: `loss_scaler(loss, optimizer)`."""
    found = {item.function.index for item in context.program.trainings}
    for function in context.tables.functions:
        for event in function.events:
            if isinstance(event, CallEvent) and (
                method_of(event.call)[1] == "zero_grad" or _gets_loss_and_optimizer(event.call)
            ):
                found.add(function.index)
    return found


def _gets_loss_and_optimizer(call: Call) -> bool:
    names = [dotted(argument.value).rpartition(".")[2].lower() for argument in call.arguments[:2]]
    return len(names) == 2 and "loss" in names[0] and "optim" in names[1]
