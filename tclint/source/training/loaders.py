"""What rules on data loaders share: which loader feeds training, and how its batches reach the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.context import SourceContext
from tclint.source.names.queries import Called, bound, keyword, root_name, words
from tclint.source.names.resolve import UNKNOWN, Symbol
from tclint.source.syntax.tables import (
    Call,
    Expression,
    Function,
    Literal,
    Name,
    dotted,
    method_of,
    render,
)

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_EVALUATION = words("val valid validation test eval evaluation dev query gallery infer inference predict")


def targets_of(loader: Called) -> list[str]:
    """Names that the loader is assigned to."""
    found: list[str] = []
    for event in loader.function.events:
        value = getattr(event, "value", None)
        if isinstance(value, Call) and value.node_id == loader.call.node_id:
            found.extend(getattr(event, "targets", ()))
    return found


def _parts(name: str) -> set[str]:
    return {part for part in name.lower().replace(".", "_").split("_") if part}


def feeds_evaluation(context: SourceContext, loader: Called) -> bool:
    """By its name, its dataset's or its function's: not for training."""
    named = [*targets_of(loader), loader.function.name]
    dataset = keyword(loader.call, "dataset", 0)
    if dataset is not None:
        named.append(dotted(dataset) or render(dataset))
        if isinstance(dataset, Call) and keyword(dataset, "train") == Literal(False):
            return True
        for scope, item in (
            context.resolver.definitions(loader.function, dataset.dotted)[0]
            if isinstance(dataset, Name)
            else ()
        ):
            del scope
            if isinstance(item.value, Call) and keyword(item.value, "train") == Literal(False):
                return True
    found = {part for name in named for part in _parts(name)}
    compact = " ".join(named).lower()
    if found & {"train", "training", "trainloader", "trainset"}:
        return False
    return bool(found & _EVALUATION) or any(
        word in compact for word in ("testloader", "valloader", "testset", "valset")
    )


def training_loops(context: SourceContext, loader: Called) -> Iterator[tuple[Function, int]]:
    """Loops over the loader that hold a backward call."""
    program = context.program
    names = set(targets_of(loader))
    if not names:
        return
    for training in program.trainings:
        function = training.function
        same = loader.function.index in (function.index, 0)
        for loop, _, header in program.loops_of(function):
            iterated = getattr(header.value, "parts", (None,))[0]
            if iterated is None or loop not in function.enclosing(training.backward.block):
                continue
            read = {dotted(part) for part in _all_names(iterated)}
            if read & {name for name in names if same or name.startswith("self.")}:
                yield function, loop


def _all_names(expression: Expression) -> Iterator[Expression]:
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            yield part
        elif isinstance(part, Call):
            pending.extend(argument.value for argument in part.arguments)


def copies_in_training(context: SourceContext, loader: Called) -> list[Call]:
    return [
        copy
        for function, loop in training_loops(context, loader)
        for copy in _copies_in_loop(context, function, loop)
    ]


def _copies_in_loop(context: SourceContext, function: Function, loop: int) -> list[Call]:
    found = []
    names = context.program.loop_names(function, loop)
    for event in function.calls:
        receiver, method = method_of(event.call)
        if receiver is None or root_name(receiver) not in names:
            continue
        if loop not in function.enclosing(event.block):
            continue
        if (
            method == "cuda"
            or (method == "to" and to_gpu(context, function, event.call))
            or (method == "type" and _to_cuda_type(context, function, event.call))
        ):
            found.append(event.call)
    return found


def copies_elsewhere(context: SourceContext, loader: Called) -> tuple[SourceContext, list[Call]] | None:
    """Copies to the GPU in a training loop of another file whose function gets the loader, and that file."""
    targets = set(targets_of(loader))
    for event in loader.function.calls:
        given = [argument for argument in event.call.arguments if dotted(argument.value) in targets]
        if not given:
            continue
        for other, helper in context.definitions_of(loader.function, event.call.function, (b".backward(",)):
            passed = bound(event.call, other.resolver.parameters(helper))
            names = {name for name, value in passed.items() if dotted(value) in targets}
            copies = _copies_over(other, helper, names) if other is not context else []
            if copies:
                return other, copies
    return None


def _copies_over(context: SourceContext, function: Function, names: set[str]) -> list[Call]:
    """Copies to the GPU in the loops of a training function over one of these names."""
    backwards = [
        training.backward.block
        for training in context.program.trainings
        if training.function.index == function.index
    ]
    for loop, _, header in context.program.loops_of(function):
        iterated = getattr(header.value, "parts", (None,))[0]
        holds = any(loop in function.enclosing(block) for block in backwards)
        if holds and iterated is not None and {dotted(part) for part in _all_names(iterated)} & names:
            return _copies_in_loop(context, function, loop)
    return []


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


def dataset_made_by(context: SourceContext, loader: Called) -> list[tuple[Function, Call]]:
    """The calls that make the loader's dataset."""
    dataset = keyword(loader.call, "dataset", 0)
    if isinstance(dataset, Call):
        return [(loader.function, dataset)]
    if isinstance(dataset, Name):
        return [
            (scope, item.value)
            for scope, item in context.resolver.definitions(loader.function, dataset.dotted)[0]
            if isinstance(item.value, Call)
        ]
    return []
