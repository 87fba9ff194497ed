"""Whether the model that a program trains is a network of 2-D convolutions, by what makes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tclint.source.library_models import (
    NOT,
    Built,
    arguments_of,
    library_model,
    parameters,
    passed_for,
)
from tclint.source.queries import keyword, words
from tclint.source.tables import (
    Assignment,
    Attribute,
    Call,
    CallEvent,
    Choice,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Other,
    Return,
    dotted,
    method_of,
    parts_of,
    render,
)

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

_DEPTH = 8
"""Names, wrappers and functions followed from a use of a model to what makes it."""
_CLASS_DEPTH = 5
ENOUGH = 3
"""Conv2d layers written in a model's classes from which on it counts as convolutional."""

_WRAPPERS = words(
    "DataParallel DistributedDataParallel DDP DP FullyShardedDataParallel convert_sync_batchnorm "
    "convert_syncbn_model"
)
_SAME = words(
    "cuda to cpu train float requires_grad_ apply module half bfloat16 double share_memory to_empty"
)
_ATTENTION = re.compile(
    r"multihead|former|scaled_dot_product|\bvit|swin|mamba"
    r"|(?<!channel)(?<!spatial)(?<!coord)(?<!pixel)(?<!_)(?:attention|attn)(?:block|layer)?$",
    re.IGNORECASE,
)
"""In names of layers and functions. Attention made of 1x1 convolutions (CBAM and its like) is not meant."""


class Models:
    """Answers for one file."""

    def __init__(self, context: SourceContext) -> None:
        self.context = context
        self._classes: dict[tuple[str, int], Layers] = {}

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
            if item.unpacked:
                value = _unpacked(item, name)
            if value is None or value == Literal(None):
                continue
            yield from self._value(scope, value, depth - 1, seen)
        owner = resolver.owner(function, name)
        if owner is not None and any(parameter.name == name for parameter in owner.parameters):
            yield from self._passed(owner, name, depth, seen)

    def _passed(
        self, owner: Function, name: str, depth: int, seen: set[tuple[int, str]]
    ) -> Iterator[Built | str | None]:
        found = False
        for value, caller in arguments_of(self.context, owner, name):
            found = True
            yield from self._value(caller, value, depth - 1, seen)
        if not found and depth > 2:
            yield from self._passed_elsewhere(owner, name)

    def _passed_elsewhere(self, owner: Function, name: str) -> Iterator[Built | str | None]:
        """What other files of the project that import the function pass for its parameter."""
        called = owner
        if owner.name == "__init__" and owner.parent >= 0:
            called = self.context.tables.functions[owner.parent]
        if called.parent != 0:
            return
        listed = parameters(self.context, owner)
        for other in self.context.neighbours.importing(called.name):
            context = self.context.project.context_of(other)
            if context is None:
                continue
            models = Models(context)
            for function, event, _ in context.program.methods(called.name):
                for qualified in context.resolver.called(function, event.call):
                    found = context.project.definition(qualified, (called.name.encode(),))
                    if found is None or not _same_file(found[0].path, self.context.path):
                        continue
                    value = passed_for(event.call, listed, name)
                    if value is not None:
                        yield from models._value(function, value, _DEPTH - 2, set())
                    break

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
        receiver, method = method_of(call)
        if method in _WRAPPERS:
            inner = keyword(call, "module", 0)
            if inner is not None:
                yield from self._value(scope, inner, depth - 1, seen)
            return
        known = library_model(self.context, scope, call)
        if known is not None:
            yield known
            return
        for qualified in resolver.called(scope, call):
            if qualified.startswith("torch.nn."):
                layers = self._layers_of_expression(self.context, scope, call, _CLASS_DEPTH)
                yield layers.verdict("nn.Sequential", self.context, call.site)
                return
            found = None
            if not qualified.startswith(("torch.", "torchvision.")):
                found = self.context.project.definition(qualified)
            if found is not None:
                yield from self._defined(*found, scope, call, depth)
                return
        local = resolver.local_functions(scope, call.function)
        if local:
            for function in local:
                yield from self._defined(self.context, function, scope, call, depth)
            return
        if receiver is not None and method in _SAME:
            yield from self._value(scope, receiver, depth - 1, seen)
            return
        starred = _through_star(self.context, scope, dotted(call.function))
        if starred is not None:
            yield from self._defined(*starred, scope, call, depth)
            return
        yield None

    def _defined(
        self, context: SourceContext, function: Function, scope: Function, call: Call, depth: int
    ) -> Iterator[Built | str | None]:
        """What a class is, or what a function returns; `call` is where the trained file calls it."""
        site = call.site
        if function.kind == "class":
            layers = self.layers(context, function)
            for argument in call.arguments:
                # `ResNet(BasicBlock, [2, 2, 2, 2])`
                if isinstance(argument.value, Name):
                    block = Call(argument.value, (), site)
                    layers = layers + self._layers_of_callee(self.context, scope, block, _CLASS_DEPTH)
            yield layers.verdict(function.name, self.context, site)
            return
        models = self if context is self.context else Models(context)
        for event in function.events:
            if not isinstance(event, Return) or event.is_yield:
                continue
            value = event.value
            if isinstance(value, Collection):
                continue
            for made in models._value(function, value, depth - 2, set()):
                # A file's own function is where its model is made; another file's is named by the call.
                elsewhere = isinstance(made, Built) and models is not self
                yield made._replace(context=self.context, site=site) if elsewhere else made  # type: ignore[union-attr]

    # -- layers of classes

    def layers(self, context: SourceContext, owner: Function, depth: int = _CLASS_DEPTH) -> Layers:
        """Layers that a class makes, with the classes and functions of the project that it uses."""
        key = (context.path, owner.index)
        if key not in self._classes:
            self._classes[key] = Layers()  # a class that makes itself
            total = Layers(attention=bool(_ATTENTION.search(owner.name)))
            outer = context.tables.functions[owner.parent] if owner.parent >= 0 else owner
            for base in owner.bases:
                total = total + self._layers_of_callee(context, outer, Call(base, (), 0), depth)
            for member in context.values.members(owner):
                total = total + self._layers_of_function(context, member, depth)
            self._classes[key] = total
        return self._classes[key]

    def _layers_of_function(self, context: SourceContext, function: Function, depth: int) -> Layers:
        total = Layers()
        for event in function.events:
            if isinstance(event, CallEvent):
                total = total + self._layers_of_callee(context, function, event.call, depth)
        return total

    def _layers_of_expression(
        self, context: SourceContext, function: Function, value: Expression, depth: int
    ) -> Layers:
        total = Layers()
        if isinstance(value, Call):
            total = self._layers_of_callee(context, function, value, depth)
        for part in parts_of(value):
            total = total + self._layers_of_expression(context, function, part, depth)
        return total

    def _layers_of_callee(self, context: SourceContext, function: Function, call: Call, depth: int) -> Layers:
        if depth <= 0:
            return Layers()
        name = dotted(call.function)
        attention = bool(_ATTENTION.search(name))
        known = library_model(context, function, call)
        if known is not None:
            return Layers(conv2d=ENOUGH) if isinstance(known, Built) else Layers(attention=True)
        for qualified in context.resolver.called(function, call):
            last = qualified.rpartition(".")[2]
            if qualified.startswith("torch.nn."):
                flat = last in ("Conv2d", "ConvTranspose2d")
                line = last in ("Conv1d", "ConvTranspose1d") or (flat and _is_line(call))
                return Layers(
                    conv2d=int(flat and not line),
                    conv1d=int(line),
                    conv3d=int(last in ("Conv3d", "ConvTranspose3d")),
                    attention=attention,
                )
            if qualified.startswith(("torch.", "torchvision.")):
                return Layers(attention=attention)
            found = context.project.definition(qualified)
            if found is not None:
                return self._layers_of_definition(*found, depth - 1)
            return Layers(attention=attention)
        starred = _through_star(context, function, name)
        if starred is not None:
            return self._layers_of_definition(*starred, depth - 1)
        total = Layers(attention=attention)
        if dotted(call.function).startswith(("self.", "cls.")):
            return total  # a method of the class, which is counted as one of its members
        for local in context.resolver.local_functions(function, call.function):
            total = total + self._layers_of_definition(context, local, depth - 1)
        return total

    def _layers_of_definition(self, context: SourceContext, function: Function, depth: int) -> Layers:
        if depth <= 0:
            return Layers()
        if function.kind == "class":
            return self.layers(context, function, depth)
        if function.kind == "function":
            return self._layers_of_function(context, function, depth)
        return Layers()


class Layers(NamedTuple):
    """What the classes of a model make."""

    conv2d: int = 0
    conv1d: int = 0
    conv3d: int = 0
    attention: bool = False

    def __add__(self, more: Layers) -> Layers:  # type: ignore[override]
        return Layers(
            self.conv2d + more.conv2d,
            self.conv1d + more.conv1d,
            self.conv3d + more.conv3d,
            self.attention or more.attention,
        )

    def verdict(self, name: str, context: SourceContext, site: int) -> Built | str | None:
        """What a model with these layers is."""
        # A few 1-D convolutions across channels (ECA) leave a network one for images.
        if self.attention or self.conv3d or 2 * self.conv1d >= max(self.conv2d, 1):
            return NOT
        return Built(name, self.conv2d, context, site) if self.conv2d >= ENOUGH else None


def _through_star(
    context: SourceContext, scope: Function, name: str
) -> tuple[SourceContext, Function] | None:
    """What a name means that only `from module import *` can have brought."""
    if not name or "." in name or context.resolver.owner(scope, name) is not None:
        return None
    for item in context.tables.module.imports:
        if item.name == "*" and not item.qualified.startswith(("torch.", "torchvision.")):
            found = context.project.definition(f"{item.qualified}.{name}")
            if found is not None:
                return found
    return None


def _is_line(call: Call) -> bool:
    """A kernel of one row or one column, as for sound that is folded into two axes."""
    kernel = keyword(call, "kernel_size", 2)
    if not isinstance(kernel, Collection) or len(kernel.items) != 2:
        return False
    return sum(item == Literal(1) for item in kernel.items) == 1


def _same_file(one: str, other: str) -> bool:
    return os.path.abspath(one) == os.path.abspath(other)


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
            return method in _SAME or method in _WRAPPERS
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
