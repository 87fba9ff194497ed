"""What rules on data loaders share: which loader feeds training, and how its batches reach the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.names.queries import Called, bound, keyword, words
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
    parts_of,
    render,
)

_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_STEPS_FOLLOWED = 200
"""Names and functions that a loader is followed to."""
_NO_LOADER = words("len print range int float str isinstance max min ceil floor next")
"""What is made of a loader and is none."""
_PLACES_BATCHES = words("prepare prepare_data_loader setup_dataloaders")
"""Methods of Accelerate and Fabric after which batches arrive on the GPU."""
_EVALUATION = words("val valid validation test eval evaluation dev query gallery infer inference predict")


def loaders_of(context: SourceContext) -> list[Called]:
    """Every `DataLoader(...)` of the file, with the options that a dict of the file hands over."""
    return [
        loader._replace(call=context.resolver.spread(loader.function, loader.call))
        for loader in context.program.calls(*_LOADERS)
    ]


def targets_of(loader: Called) -> list[str]:
    """Names that the loader is assigned to."""
    made = _made_into(loader.function).get(loader.call.node_id, ())
    return [target for event in made for target in event.targets]


def _made_into(function: Function) -> dict[int, list[Assignment]]:
    """Assignments of what calls return, by the call's node id."""
    known: dict[int, list[Assignment]] | None = function.known.get("made into")
    if known is None:
        known = function.known["made into"] = {}
        for event in function.assignments:
            if isinstance(event.value, Call):
                known.setdefault(event.value.node_id, []).append(event)
    return known


def _mentions(function: Function) -> dict[str, list[CallEvent | Assignment]]:
    """By name: calls that get it as an argument, and assignments of it or of what such calls return."""
    known: dict[str, list[CallEvent | Assignment]] | None = function.known.get("mentions")
    if known is None:
        known = function.known["mentions"] = {}
        for event in function.events:
            if not isinstance(event, CallEvent | Assignment):
                continue
            value = event.call if isinstance(event, CallEvent) else event.value
            arguments = (
                [argument.value for argument in value.arguments] if isinstance(value, Call) else [value]
            )
            for name in dict.fromkeys(dotted(argument) for argument in arguments):
                known.setdefault(name, []).append(event)
    return known


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
            for loop in sorted(function.enclosing(training.backward.block)):
                header = program.header_of(function, loop)
                iterated = getattr(header.value, "parts", (None,))[0] if header is not None else None
                if iterated is not None and names & set(names_read(iterated)):
                    bound_names = frozenset(program.loop_names(function, loop))
                    yield Feeding(where, function, loop, bound_names, names)
            if training.block:
                taken = [
                    target
                    for event in _takes(function)
                    if training.block in function.enclosing(event.block) and takes_next(event.value, names)
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
    pending += _given_back(context, loader.function, lambda item: _is_call(item, loader.call))
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
    for event in _mentions(function).get(name, ()):
        if isinstance(event, CallEvent) and method_of(event.call)[1] in _PLACES_BATCHES:
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
    for event in _mentions(function).get(name, ()):
        if isinstance(event, Assignment):
            if event.operator:
                continue
            if not isinstance(event.value, Call):
                yield from ((context, function, target) for target in event.targets if not event.unpacked)
            elif method_of(event.value)[1] not in _NO_LOADER:
                same = (name,) if name in event.targets else ()
                targets = same if event.unpacked else event.targets
                yield from ((context, function, target) for target in targets)
        else:
            for where, helper in context.definitions_of(function, event.call.function, (b".backward(",)):
                if helper.kind == "function":
                    passed = bound(event.call, where.resolver.parameters(helper))
                    yield from (
                        (where, helper, parameter)
                        for parameter, value in passed.items()
                        if value == Name(name)
                    )

    yield from _given_back(context, function, lambda item: item == Name(name))


def _returns(function: Function) -> list[Return]:
    known: list[Return] | None = function.known.get("returns")
    if known is None:
        known = function.known["returns"] = [event for event in function.events if isinstance(event, Return)]
    return known


def _is_call(expression: Expression, call: Call) -> bool:
    return isinstance(expression, Call) and expression.node_id == call.node_id


def _given_back(
    context: SourceContext, function: Function, is_wanted: Callable[[Expression], bool]
) -> Iterator[tuple[SourceContext, Function, str]]:
    """Names that callers give to what a function returns, alone or as one of several."""
    for event in _returns(function):
        several = event.value.items if isinstance(event.value, Collection) else None
        for position, item in enumerate(several or (event.value,)):
            if is_wanted(item):
                yield from _received(context, function, None if several is None else position)


def _received(
    context: SourceContext, function: Function, position: int | None
) -> Iterator[tuple[SourceContext, Function, str]]:
    """Names that callers, in this file or in others, give to what a function returns."""
    here = ((context, *call) for call in context.resolver.callers.get(function.index, ()))
    for where, caller, call in (*here, *context.callers_elsewhere(function)):
        for event in _made_into(caller).get(call.call.node_id, ()):
            if position is None and not event.unpacked:
                yield from ((where, caller, target) for target in event.targets)
            elif position is not None and event.unpacked and position < len(event.targets):
                yield where, caller, event.targets[position]


def takes_next(value: Expression, names: frozenset[str]) -> bool:
    """`next(iterator)`, `next(iterator).to(device)`, `iterator.next()`."""
    given = _next_of(value)
    return given is not None and dotted(given) in names


def _next_of(value: Expression) -> Expression | None:
    while isinstance(value, Call):
        receiver, method = method_of(value)
        if method == "next":
            return receiver if receiver is not None else value.arguments[0].value if value.arguments else None
        if receiver is None:
            return None
        value = receiver
    return None


def _takes(function: Function) -> list[Assignment]:
    """Assignments of what `next` gives."""
    known: list[Assignment] | None = function.known.get("takes")
    if known is None:
        known = function.known["takes"] = [
            event for event in function.assignments if _next_of(event.value) is not None
        ]
    return known


def names_read(expression: Expression) -> Iterator[str]:
    """Names of an expression, with the arguments of its calls and what its comprehensions go over."""
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            yield part.dotted
        elif isinstance(part, Call):
            pending.extend(argument.value for argument in part.arguments)
            receiver = method_of(part)[0]
            if receiver is not None and method_of(part)[1] in ("items", "values"):
                pending.append(receiver)
        else:
            pending.extend(parts_of(part))


def dataset_made_by(context: SourceContext, loader: Called) -> list[tuple[Function, Call]]:
    """The calls that make the loader's dataset."""
    return datasets_made(context, loader.function, keyword(loader.call, "dataset", 0), 0)


def datasets_made(
    context: SourceContext, function: Function, dataset: Expression | None, depth: int = 3
) -> list[tuple[Function, Call]]:
    """The calls that make a dataset, or what it is a part of."""
    made = [(function, dataset)] if isinstance(dataset, Call) else []
    if not made and dataset is not None:
        origins = context.resolver.origins_of(function, dotted(dataset))
        made = [(scope, value) for scope, value in origins if isinstance(value, Call)]
    found = []
    for scope, call in made:
        is_part = method_of(call)[1] in ("random_split", "Subset") and depth > 0
        found += (
            datasets_made(context, scope, keyword(call, "dataset", 0), depth - 1)
            if is_part
            else [(scope, call)]
        )
    return found
