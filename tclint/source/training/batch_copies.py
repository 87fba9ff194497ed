"""Copies of a loader's batches to the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.context import SourceContext
from tclint.source.names.queries import Called, keyword, root_name
from tclint.source.names.readers import NOTHING
from tclint.source.names.resolve import UNKNOWN, Symbol
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Closure,
    Expression,
    Function,
    Literal,
    Name,
    Other,
    method_of,
    parts_within,
    render,
)
from tclint.source.training.loaders import Feeding, feedings, names_read, takes_next


def copies_in_training(context: SourceContext, loader: Called) -> tuple[SourceContext, list[Call]]:
    """Copies of the loader's batches to the GPU in training loops, and their file: this one's, or else those
    of the first other file that has some."""
    found: dict[str, tuple[SourceContext, list[Call]]] = {}
    for feeding in feedings(context, loader):
        copies = copies_of(feeding)
        if copies:
            found.setdefault(feeding.context.path, (feeding.context, []))[1].extend(copies)
    return found.get(context.path) or next(iter(found.values()), (context, []))


def copies_of(feeding: Feeding) -> list[Call]:
    """Copies of batches to the GPU, but for loops inside that bind the names anew, to evaluate."""
    context, function, loop, names, loaders = feeding
    found = []
    for event in function.events:
        if not isinstance(event, CallEvent | Assignment):
            continue
        around = function.enclosing(event.block)
        if loop not in around:
            continue
        inside = [index for index in around[: around.index(loop)] if function.blocks[index].kind == "loop"]
        anew = {name for index in inside for name in context.program.loop_names(function, index)}
        if isinstance(event, CallEvent):
            receiver = method_of(event.call)[0] or NOTHING
            taken = takes_next(receiver, loaders)
            while isinstance(receiver, Call):  # `batch.float().to(device)`
                receiver = method_of(receiver)[0] or NOTHING
            read = taken or root_name(receiver) in names - anew
            if read and copies_to_gpu(context, function, event.call):
                found.append(event.call)
        # Of an expression that goes over the batch, the copies of its items.
        value = event.call if isinstance(event, CallEvent) else event.value
        for over in _over_items(value):
            if {name.split(".", 1)[0] for name in names_read(over)} & (names - anew):
                found += [call for call in _calls_in(context, over) if copies_to_gpu(context, function, call)]
    return list({call.node_id: call for call in found}.values())


def _over_items(value: Expression) -> Iterator[Expression]:
    """`[x.cuda() for x in batch]`, also as an argument; `map(lambda x: x.cuda(), batch)`."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, Other) and part.kind == "comprehension":
            yield part
        elif isinstance(part, Call):
            if part.function == Name("map"):
                yield part
            pending.extend(argument.value for argument in part.arguments)


def _calls_in(context: SourceContext, expression: Expression) -> Iterator[Call]:
    """Calls of an expression and of the lambdas in it."""
    for part in parts_within(expression):
        if isinstance(part, Call):
            yield part
        elif isinstance(part, Closure):
            yield from (event.call for event in context.tables.functions[part.function].calls)


def copies_to_gpu(context: SourceContext, function: Function, call: Call) -> bool:
    """`x.cuda()`, `x.to(device)`, `x.type(torch.cuda.FloatTensor)`."""
    receiver, method = method_of(call)
    if receiver is None:
        return False
    return (
        method == "cuda"
        or (method == "to" and to_gpu(context, function, call))
        or (method == "type" and _to_cuda_type(context, function, call))
    )


def _to_cuda_type(context: SourceContext, function: Function, call: Call) -> bool:
    """`x.type(Tensor)` for `Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`."""
    given = keyword(call, "dtype", 0)
    possible = context.resolver.evaluate(function, given) if given is not None else UNKNOWN
    return any(
        isinstance(value, Symbol) and value.qualified.startswith("torch.cuda.") for value in possible.values
    )


def to_gpu(context: SourceContext, function: Function, call: Call) -> bool:
    """`.to(device)` for a device that is or may be a GPU."""
    given = keyword(call, "device", 0)
    if given is None or (isinstance(given, Literal) and not isinstance(given.value, str | int)):
        return False
    possible = context.resolver.evaluate(function, given)
    devices = [value.split(":", 1)[0] for value in possible.values if isinstance(value, str)]
    if devices:
        return "cuda" in devices
    text = render(given).lower()
    return "device" in text or "gpu" in text or text.endswith("rank") or isinstance(given, Literal)
