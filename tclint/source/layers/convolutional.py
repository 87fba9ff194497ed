"""Whether the model that a program trains is a network of 2-D convolutions, by what makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tclint.source.context import SourceContext
from tclint.source.layers.layer_counts import CLASS_DEPTH, LayerCounts
from tclint.source.layers.library_models import Built, library_model, only_text
from tclint.source.names.queries import PLACING, WRAPPERS, bound, inner_model
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    Choice,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Other,
    Return,
    Subscript,
    dotted,
    method_of,
    render,
)

_DEPTH = 8
"""Names, wrappers and functions followed from a use of a model to what makes it."""


class Models:
    """Answers for one file."""

    def __init__(
        self, context: SourceContext, classes: list[tuple[SourceContext, Function]] | None = None
    ) -> None:
        self.context = context
        self.counts = LayerCounts()
        self.classes = [] if classes is None else classes
        """Classes of the project that the models followed so far are objects of, with their files."""

    def _in(self, context: SourceContext) -> Models:
        """The same question in another file."""
        return self if context is self.context else Models(context, self.classes)

    def made(self, function: Function, name: str) -> Iterator[Built | str | None]:
        """What the model of that name is made by, once for each way; None for one that is not known."""
        seen: set[tuple[int, str]] = set()
        yield from self._name(function, name, _DEPTH, seen)

    # -- following names

    def _name(
        self, function: Function, name: str, depth: int, seen: set[tuple[int, str]]
    ) -> Iterator[Built | str | None]:
        if depth <= 0 or (function.index, name) in seen:
            return
        seen.add((function.index, name))
        resolver = self.context.resolver
        root = name.split(".", 1)[0]
        if root == "self" and name.endswith(".module"):
            name = name.removesuffix(".module")
        for scope, item in resolver.definitions(function, name)[0]:
            if item.operator or _is_wrapping_itself(item, name):
                continue
            value: Expression | None = item.value
            if item.unpacked and isinstance(item.value, Call):
                yield from self._returned(scope, item.value, item.targets.index(name), depth - 1)
                continue
            if item.unpacked:
                value = _unpacked(item, name)
            if value is None or value == Literal(None):
                continue
            yield from self._value(scope, value, depth - 1, seen)
        if root == "self" and not resolver.definitions(function, name)[0]:
            yield from self._inherited(function, name, depth - 1)
        owner = resolver.owner(function, name)
        if owner is not None and any(parameter.name == name for parameter in owner.parameters):
            yield from self._passed(owner, name, depth, seen)

    def _passed(
        self, owner: Function, name: str, depth: int, seen: set[tuple[int, str]]
    ) -> Iterator[Built | str | None]:
        found = False
        for caller, value in self.context.resolver.passed(owner, name):
            found = True
            yield from self._value(caller, value, depth - 1, seen)
        if not found and depth > 2:
            for context, caller, value in self.context.passed_elsewhere(owner, name):
                yield from self._in(context)._value(caller, value, _DEPTH - 2, set())

    def _inherited(self, function: Function, name: str, depth: int) -> Iterator[Built | str | None]:
        """What the nearest base class that assigns `self.model` makes of it."""
        owner = self.context.tables.class_of(function)
        if owner is None:
            return
        for base in owner.bases:
            for context, found in self.context.definitions_of(
                self.context.tables.functions[owner.parent], base
            ):
                members = [member for member in context.values.members(found) if member.kind == "function"]
                if not members:
                    continue
                models = self._in(context)
                made = [
                    *self._handed_up(owner, context, members, name, depth),
                    *models._name(members[0], name, depth, set()),
                ]
                yield from (self._seen_from_here(item, context, owner.node_id) for item in made)
                if made:
                    return

    def _handed_up(
        self, owner: Function, context: SourceContext, inherited: list[Function], name: str, depth: int
    ) -> Iterator[Built | str | None]:
        """What a class hands to `super().__init__`, whose parameter becomes `self.model` there."""
        kept = {
            dotted(item.value)
            for member in inherited
            for item in context.resolver.assignments(member, name)
            if member.name == "__init__" and not item.unpacked
        }
        makers = [member for member in inherited if member.name == "__init__"]
        for member in self.context.values.members(owner):
            for event in member.calls:
                if method_of(event.call)[1] != "__init__":
                    continue
                for parameter in kept & {item.name for item in makers[0].parameters} if makers else ():
                    value = bound(event.call, context.resolver.parameters(makers[0])).get(parameter)
                    if value is not None:
                        yield from self._value(member, value, depth - 1, set())

    def _returned(
        self, scope: Function, call: Call, position: int, depth: int
    ) -> Iterator[Built | str | None]:
        """The part at a position of what a function of the project returns: `model, optimizer = build()`."""
        if depth <= 0:
            return
        for context, function in self.context.definitions_of(scope, call.function):
            models = self._in(context)
            for event in function.events if function.kind == "function" else ():
                if not isinstance(event, Return) or event.is_yield or not isinstance(event.value, Collection):
                    continue
                if len(event.value.items) > position:
                    for made in models._value(function, event.value.items[position], depth - 1, set()):
                        yield self._seen_from_here(made, context, call.node_id)

    def _seen_from_here(
        self, made: Built | str | None, context: SourceContext, node_id: int
    ) -> Built | str | None:
        """A model of another file is named by the place where this one asks for it."""
        if isinstance(made, Built) and context is not self.context:
            return made._replace(context=self.context, node_id=node_id)
        return made

    # -- what an expression makes

    def _value(
        self, scope: Function, value: Expression, depth: int, seen: set[tuple[int, str]]
    ) -> Iterator[Built | str | None]:
        if depth <= 0:
            yield None
            return
        match value:
            case Name(name):
                if not self.context.resolver.qualified(scope, name):
                    yield from self._name(scope, name, depth, seen)
            case Choice(_, first, second):
                yield from self._value(scope, first, depth - 1, seen)
                yield from self._value(scope, second, depth - 1, seen)
            case Attribute(inner, "module"):
                yield from self._value(scope, inner, depth - 1, seen)
            case Call():
                yield from self._call(scope, value, depth, seen)
            case Other("iterate", _):
                return
            case Literal(None):
                return
            case _:
                yield None

    def _call(
        self, scope: Function, call: Call, depth: int, seen: set[tuple[int, str]]
    ) -> Iterator[Built | str | None]:
        resolver = self.context.resolver
        inner = inner_model(call)
        if inner is not None and method_of(call)[1] in WRAPPERS:
            yield from self._value(scope, inner, depth - 1, seen)
            return
        known = library_model(self.context, scope, call)
        if known is not None:
            yield known
            return
        if isinstance(call.function, Subscript):
            yield from self._registered(scope, call.function, call, depth)
            return
        for qualified in resolver.called(scope, call):
            if qualified.startswith("torch.nn."):
                layers = self.counts.of_expression(self.context, scope, call, CLASS_DEPTH)
                yield layers.verdict("nn.Sequential", self.context, call.node_id)
                return
        found = list(self.context.definitions_of(scope, call.function))
        for definition in found:
            yield from self._defined(*definition, scope, call, depth)
        if not found and inner is not None:
            yield from self._value(scope, inner, depth - 1, seen)
        elif not found:
            yield None

    def _registered(
        self, scope: Function, chosen: Subscript, call: Call, depth: int
    ) -> Iterator[Built | str | None]:
        """`MODELS[name](...)` of a dict of the file: certain where each of its models is known. Of
        `models.__dict__[name](...)`, the one that is chosen, or the default."""
        name = dotted(chosen.value)
        if name.endswith(".__dict__"):
            text, certain = only_text(self.context, scope, chosen.key)
            for qualified in self.context.resolver.qualified(scope, name.removesuffix(".__dict__")):
                defined = self.context.project.definition(f"{qualified}.{text}") if text else None
                if defined is not None:
                    for item in self._defined(*defined, scope, call, depth - 1):
                        yield item._replace(is_default=not certain) if isinstance(item, Built) else item
                    return
        found, complete = self.context.resolver.definitions(scope, name)
        table = found[0][1].value if complete and len(found) == 1 else None
        if not isinstance(table, Collection) or table.kind != "dict" or any(k is None for k in table.keys):
            yield None
            return
        made = [
            item
            for value in table.items
            for item in self._value(found[0][0], Call(value, call.arguments, call.node_id), depth - 1, set())
        ]
        if made and all(isinstance(item, Built) for item in made):
            yield from made
        else:
            yield next((item for item in made if isinstance(item, str)), None)

    def _defined(
        self, context: SourceContext, function: Function, scope: Function, call: Call, depth: int
    ) -> Iterator[Built | str | None]:
        """What a class is, or what a function returns; `call` is where the trained file calls it."""
        node_id = call.node_id
        if function.kind == "class":
            self.classes.append((context, function))
            layers = self.counts.of_class(context, function)
            for argument in call.arguments:
                # `ResNet(BasicBlock, [2, 2, 2, 2])`
                if isinstance(argument.value, Name):
                    block = Call(argument.value, (), node_id)
                    layers = layers + self.counts.of_callee(self.context, scope, block, CLASS_DEPTH)
            yield layers.verdict(function.name, self.context, node_id)
            return
        models = self._in(context)
        for event in function.events:
            if not isinstance(event, Return) or event.is_yield:
                continue
            value = event.value
            if isinstance(value, Collection):
                continue
            for made in models._value(function, value, depth - 2, set()):
                # A file's own function is where its model is made; another file's is named by the call.
                yield self._seen_from_here(made, context, node_id)


def _unpacked(item: Assignment, name: str) -> Expression | None:
    """The part of `model, optimizer = a, b` that the name gets."""
    if isinstance(item.value, Collection) and len(item.value.items) == len(item.targets):
        return item.value.items[item.targets.index(name)]
    return None


def _is_wrapping_itself(item: Assignment, name: str) -> bool:
    """`model = DDP(model)`, `model = model.cuda()` say nothing new of `model`."""
    value = item.value
    while isinstance(value, Call):
        receiver, method = method_of(value)
        if any(dotted(argument.value) == name for argument in value.arguments):
            return True
        if receiver is None:
            return False
        if dotted(receiver) == name:
            return method in PLACING or method in WRAPPERS
        value = receiver
    return isinstance(value, Name) and value.dotted in (name, f"{name}.module")


def compiles(context: SourceContext) -> bool:
    """The file compiles something with torch.compile, as a call or a decorator."""
    decorators: Iterable[Expression] = (
        decorator for function in context.tables.functions for decorator in function.decorators
    )
    if any("compile" in render(decorator) for decorator in decorators):
        return True
    return any(
        dotted(event.call.function) not in ("re.compile", "compile")
        for _, event, _ in context.program.methods("compile")
    )
