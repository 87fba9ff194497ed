"""What rules on data loaders share: which loader feeds training, and how its batches reach the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.names.queries import Called, bound, keyword, root_name, words
from tclint.source.names.resolve import UNKNOWN, Symbol
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Return,
    dotted,
    method_of,
    render,
)

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_STEPS_FOLLOWED = 200
"""Names and functions that a loader is followed to."""
_NO_LOADER = words("len print range int float str isinstance max min ceil floor next")
"""What is made of a loader and is none."""
_PLACES_BATCHES = words("prepare prepare_data_loader setup_dataloaders")
"""Methods of Accelerate and Fabric after which batches arrive on the GPU."""
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


class Feeding(NamedTuple):
    """A training loop that a loader feeds, in this file or in another one."""

    context: SourceContext
    function: Function
    loop: int
    names: frozenset[str]
    """What it binds to batches, or to parts of them."""
    loaders: frozenset[str]
    """What the function calls the loader, or an iterator over it."""


def feedings(context: SourceContext, loader: Called) -> Iterator[Feeding]:
    """Loops that go backward and read the loader, as it is or wrapped: `for x in tqdm(loader)`,
    `x = next(cycle(loader))`; followed through assignments, arguments and what functions return."""
    for where, function, names in _carriers(context, loader):
        program = where.program
        for training in program.trainings:
            if training.function.index != function.index:
                continue
            around = function.enclosing(training.backward.block)
            for loop, _, header in program.loops_of(function):
                iterated = getattr(header.value, "parts", (None,))[0]
                if loop in around and iterated is not None and names & set(_names_read(iterated)):
                    bound_names = frozenset(program.loop_names(function, loop))
                    yield Feeding(where, function, loop, bound_names, names)
            if training.block:
                taken = [
                    target
                    for event in function.assignments
                    if training.block in function.enclosing(event.block) and _takes_next(event.value, names)
                    for target in event.targets
                ]
                if taken:
                    yield Feeding(where, function, training.block, frozenset(taken), names)


def _carriers(
    context: SourceContext, loader: Called
) -> Iterator[tuple[SourceContext, Function, frozenset[str]]]:
    """Functions that see the loader, and its names there."""
    found: dict[tuple[str, int], set[str]] = {}
    contexts = {context.path: context}
    pending = [(context, loader.function, name) for name in targets_of(loader)]
    for _ in range(_STEPS_FOLLOWED):
        if not pending:
            break
        where, function, name = pending.pop()
        if name in found.setdefault((where.path, function.index), set()) or placed_by(function, name):
            continue
        found[where.path, function.index].add(name)
        contexts.setdefault(where.path, where)
        pending += _handed_on(where, function, name)
    for (path, index), names in found.items():
        where = contexts[path]
        yield where, where.tables.functions[index], frozenset(names)


def placed_by(function: Function, name: str) -> Call | None:
    """`accelerator.prepare(model, loader)`: a framework copies the batches to the GPU."""
    for event in function.calls:
        if method_of(event.call)[1] in _PLACES_BATCHES and any(
            argument.value == Name(name) for argument in event.call.arguments
        ):
            return event.call
    return None


def _handed_on(
    context: SourceContext, function: Function, name: str
) -> Iterator[tuple[SourceContext, Function, str]]:
    """Where else what a name of a function stands for is known, and by which name."""
    owner = context.tables.class_of(function) if name.startswith("self.") else None
    if owner is not None or not function.index:
        for other in context.tables.functions:
            same_class = owner is not None and context.tables.class_of(other) is owner
            is_global = owner is None and other.kind == "function"
            if same_class or (is_global and context.resolver.owner(other, name) is function):
                yield context, other, name
    for event in function.events:
        if isinstance(event, Assignment) and not event.operator:
            if event.value == Name(name):
                yield from ((context, function, target) for target in event.targets if not event.unpacked)
            elif (
                isinstance(event.value, Call)
                and method_of(event.value)[1] not in _NO_LOADER
                and any(argument.value == Name(name) for argument in event.value.arguments)
            ):
                same = (name,) if name in event.targets else ()
                targets = same if event.unpacked else event.targets
                yield from ((context, function, target) for target in targets)
        elif isinstance(event, Return):
            items = event.value.items if isinstance(event.value, Collection) else (event.value,)
            for position, item in enumerate(items):
                if item == Name(name):
                    alone = items if isinstance(event.value, Collection) else None
                    yield from _received(context, function, None if alone is None else position)
        elif isinstance(event, CallEvent) and any(
            argument.value == Name(name) for argument in event.call.arguments
        ):
            for where, helper in context.definitions_of(function, event.call.function, (b".backward(",)):
                if helper.kind == "function":
                    passed = bound(event.call, where.resolver.parameters(helper))
                    yield from (
                        (where, helper, parameter)
                        for parameter, value in passed.items()
                        if value == Name(name)
                    )


def _received(
    context: SourceContext, function: Function, position: int | None
) -> Iterator[tuple[SourceContext, Function, str]]:
    """Names that callers in this file give to what a function returns."""
    for caller, call in context.resolver.callers.get(function.index, ()):
        for event in caller.assignments:
            if not isinstance(event.value, Call) or event.value.node_id != call.call.node_id:
                continue
            if position is None and not event.unpacked:
                yield from ((context, caller, target) for target in event.targets)
            elif position is not None and event.unpacked and position < len(event.targets):
                yield context, caller, event.targets[position]


def _takes_next(value: Expression, names: frozenset[str]) -> bool:
    """`next(iterator)`, `next(iterator).to(device)`, `iterator.next()`."""
    while isinstance(value, Call):
        receiver, method = method_of(value)
        if method == "next":
            given = (
                receiver if receiver is not None else value.arguments[0].value if value.arguments else None
            )
            return given is not None and dotted(given) in names
        if receiver is None:
            return False
        value = receiver
    return False


def _names_read(expression: Expression) -> Iterator[str]:
    """Names of an expression, and of the arguments of its calls."""
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            yield part.dotted
        elif isinstance(part, Call):
            pending.extend(argument.value for argument in part.arguments)


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
    for event in function.calls:
        receiver, method = method_of(event.call)
        around = function.enclosing(event.block)
        if receiver is None or loop not in around:
            continue
        name = root_name(receiver)
        if name not in names and not _takes_next(receiver, loaders):
            continue
        inside = [index for index in around[: around.index(loop)] if function.blocks[index].kind == "loop"]
        if any(name in context.program.loop_names(function, index) for index in inside):
            continue
        if (
            method == "cuda"
            or (method == "to" and to_gpu(context, function, event.call))
            or (method == "type" and _to_cuda_type(context, function, event.call))
        ):
            found.append(event.call)
    return found


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
    origins = context.resolver.origins_of(loader.function, dotted(dataset)) if dataset is not None else ()
    return [(scope, value) for scope, value in origins if isinstance(value, Call)]
