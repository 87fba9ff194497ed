"""softmax(q k^T) v written out in a function: which products and softmaxes belong together, and whether
anything else reads what lies between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.names.queries import keyword, names_in, words
from tclint.source.names.readers import METADATA
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    CallEvent,
    Closure,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Return,
    dotted,
    method_of,
    parts_of,
    render,
)

_MASKS = ("mask", "causal")
"""In names of what may be added to scores."""
_PRODUCTS = frozenset({"torch.matmul", "torch.bmm"})
_SOFTMAX = frozenset({"torch.softmax", "torch.nn.functional.softmax"})
_DROPOUT = frozenset({"torch.dropout", "torch.nn.functional.dropout"})
_SAME = words("to type float half bfloat16 contiguous")
_MASKING = words("masked_fill masked_fill_")
_SCALING = {"mul": "*", "mul_": "*", "div": "/", "div_": "/", "add": "+", "add_": "+"}
_SCALES = re.compile(r"scal|sqrt|temperature|norm_fact|\bdim|_dim|\bd_k|d_head|head_size|\bq\.")
_ONE_TOKEN = re.compile(r"<slice 0, 1\b|\.(?:reshape|view)\([^,()]+, 1,|\.unsqueeze\(")


class Attention(NamedTuple):
    """One written-out attention whose scores and weights nothing else reads."""

    function: Function
    softmax: Call
    masked: bool
    dropped: bool


class _Between(NamedTuple):
    """The scores, or after softmax the weights, of a product."""

    number: int
    weights: bool


def written_attentions(context: SourceContext) -> Iterator[Attention]:
    """The attentions of a file, in its order."""
    for function in context.tables.functions:
        if function.kind == "function":
            yield from _Reading(context, function).found()


class _Reading:
    """Follows the values of one function from statement to statement."""

    def __init__(self, context: SourceContext, function: Function) -> None:
        self.context = context
        self.resolver = context.resolver
        self.function = function
        self.state: dict[str, _Between] = {}
        self.softmaxes: dict[int, Call] = {}
        self.finished: list[int] = []
        self.read_otherwise: set[int] = set()
        self.masked: set[int] = set()
        self.dropped: set[int] = set()
        self.dims: dict[int, int] = {}
        """Of products whose number of dims is known."""
        self.numbers = 0

    def found(self) -> Iterator[Attention]:
        self._statements()
        closed_over = {
            name
            for other in self.context.tables.functions
            if other.index != self.function.index and self._is_inside(other)
            for event in other.events
            for part in _expressions(event)
            for name in names_in(part)
        }
        if closed_over & self.state.keys():
            return
        for number in self.finished:
            if number not in self.read_otherwise and self.finished.count(number) == 1:
                softmax = self.softmaxes[number]
                yield Attention(self.function, softmax, number in self.masked, number in self.dropped)

    def _is_inside(self, other: Function) -> bool:
        index = other.parent
        while index >= 0:
            if index == self.function.index:
                return True
            index = self.context.tables.functions[index].parent
        return False

    def _statements(self) -> None:
        inside = {
            call.node_id
            for event in self.function.events
            if isinstance(event, Assignment | Return)
            for call in _calls(event.value)
        }
        tags: dict[int, _Between | None] = {}
        for event in self.function.events:
            match event:
                case CallEvent(call, _) if call.node_id not in inside:
                    self._tag(call)
                case Assignment():
                    if event.node_id not in tags:  # `a = b = value` is two assignments of one value
                        tags[event.node_id] = None if event.operator else self._tag(event.value)
                    self._assign(event, tags[event.node_id])
                case Return(value, _, _):
                    self._poison(self._tag(value))
                case _:
                    pass

    def _assign(self, event: Assignment, tag: _Between | None) -> None:
        for target in event.targets:
            before = self.state.get(target)
            if event.operator:
                other = self._tag(event.value)
                if before is None or self._combined(event.operator, before, other, event.value) is None:
                    self._poison(before)
                    self._poison(other)
                continue
            if event.unpacked or "." in target:
                self._poison(tag)  # kept for others to look at, or taken apart
                continue
            if before is not None and tag != before and event.block:
                self._poison(before)  # on another path it stays what it was
            if tag is not None:
                self.state[target] = tag
            else:
                self.state.pop(target, None)

    def _poison(self, tag: _Between | None) -> None:
        if tag is not None:
            self.read_otherwise.add(tag.number)

    # -- expressions

    def _tag(self, value: Expression) -> _Between | None:
        """What lies between the products and is the value; whatever else is read on the way is read
        otherwise."""
        match value:
            case Name(name):
                return self._name(name)
            case Operation("@", (first, second)):
                return self._product(first, self._tag(first), self._tag(second))
            case Operation(("*" | "/" | "+" | "-") as operator, (first, second)):
                one, other = self._tag(first), self._tag(second)
                if one is not None:
                    return self._combined(operator, one, other, second)
                if other is not None and operator in ("*", "+"):
                    return self._combined(operator, other, None, first)
                self._poison(other)
                return None
            case Call():
                return self._call(value)
            case Attribute(inner, name):
                tag = self._tag(inner)
                if name not in METADATA:
                    self._poison(tag)
                return None
            case Closure():
                return None
            case _:
                for part in parts_of(value):
                    self._poison(self._tag(part))
                return None

    def _name(self, name: str) -> _Between | None:
        if name in self.state:
            return self.state[name]
        root, _, rest = name.partition(".")
        if rest and root in self.state and rest.split(".")[0] not in METADATA:
            self._poison(self.state[root])
        return None

    def _combined(
        self, operator: str, tag: _Between, other: _Between | None, operand: Expression
    ) -> _Between | None:
        """Scores scaled by a number or with a mask added are still scores."""
        if other is None and not tag.weights:
            said = " ".join(names_in(operand)).lower()
            number = isinstance(operand, Literal) or (
                (_SCALES.search(said) or _is_root(operand)) and not self._is_learned(operand)
            )
            if operator in ("*", "/") and number:
                return tag
            if operator == "+" and any(part in said for part in _MASKS) and "bias" not in said:
                self.masked.add(tag.number)
                return tag
        self._poison(tag)
        self._poison(other)
        return None

    def _product(
        self, query: Expression, first: _Between | None, second: _Between | None, *, dims: int = 0
    ) -> _Between | None:
        if second is None and first is not None and first.weights:
            self.finished.append(first.number)
            return None
        if first is None and second is None:
            self.numbers += 1
            if dims:
                self.dims[self.numbers] = dims
            if self._is_one_token(query):
                self.read_otherwise.add(self.numbers)
            return _Between(self.numbers, weights=False)
        self._poison(first)
        self._poison(second)
        return None

    def _call(self, call: Call) -> _Between | None:
        called = set(self.resolver.called(self.function, call))
        receiver, method = method_of(call)
        given = [argument.value for argument in call.arguments]
        if "torch.einsum" in called:
            return self._einsum(given)
        if called & _PRODUCTS and len(given) == 2:
            first, second = self._tag(given[0]), self._tag(given[1])
            return self._product(given[0], first, second, dims=3 if "torch.bmm" in called else 0)
        if called & _SOFTMAX:
            return self._softmax(call, keyword(call, "input", 0), keyword(call, "dim", 1))
        if "torch.where" in called and len(given) == 3:
            return self._where(given)
        if called & _DROPOUT or self._is_dropout(call):
            return self._dropout(given)
        made = self._module_softmax(call)
        if made is not None:
            return self._softmax(call, given[0] if len(given) == 1 else None, keyword(made, "dim", 0))
        tag = self._tag(receiver) if receiver is not None and not called else None
        if tag is None:
            if method in ("matmul", "bmm") and receiver is not None and not called and len(given) == 1:
                dims = 3 if method == "bmm" else 0
                return self._product(receiver, None, self._tag(given[0]), dims=dims)
            for part in given:
                self._poison(self._tag(part))
            if receiver is None:
                self._poison(self._tag(call.function))
            return None
        if method == "softmax":
            return self._softmax(call, None, keyword(call, "dim", 0), tag)
        if method in ("matmul", "bmm") and len(given) == 1:
            return self._product(given[0], tag, self._tag(given[0]))
        if method == "type_as":
            return tag  # of its argument only the dtype is read
        others = [self._tag(part) for part in given]
        if method in _SAME and not any(others):
            return tag
        if method in _MASKING and not tag.weights and not any(others):
            self.masked.add(tag.number)
            return tag
        if method in _SCALING and len(given) == 1:
            return self._combined(_SCALING[method], tag, others[0], given[0])
        for other in (tag, *others):
            if method not in METADATA:
                self._poison(other)
        return None

    def _softmax(
        self,
        call: Call,
        value: Expression | None,
        axis: Expression | None,
        tag: _Between | None = None,
    ) -> _Between | None:
        if value is not None:
            tag = self._tag(value)
        if tag is None:
            return None
        possible = self.resolver.evaluate(self.function, axis) if axis is not None else None
        last = (-1, self.dims.get(tag.number, 0) - 1)
        if tag.weights or possible is None or not possible.certain or possible.values[0] not in last:
            self._poison(tag)
            return None
        self.softmaxes[tag.number] = call
        return _Between(tag.number, weights=True)

    def _where(self, given: list[Expression]) -> _Between | None:
        tags = [self._tag(part) for part in given]
        known = [tag for tag in tags if tag is not None]
        if len(known) == 1 and tags[0] is None and not known[0].weights:
            self.masked.add(known[0].number)
            return known[0]
        for tag in known:
            self._poison(tag)
        return None

    def _dropout(self, given: list[Expression]) -> _Between | None:
        tag = self._tag(given[0]) if given else None
        if tag is None or tag.weights:
            if tag is not None:
                self.dropped.add(tag.number)
            return tag
        self._poison(tag)
        return None

    def _einsum(self, given: list[Expression]) -> _Between | None:
        if len(given) == 2 and isinstance(given[1], Collection) and given[1].kind in ("list", "tuple"):
            given = [given[0], *given[1].items]
        tags = [self._tag(part) for part in given[1:]]
        equation = given[0].value if given and isinstance(given[0], Literal) else ""
        inputs, arrow, output = str(equation).replace(" ", "").partition("->")
        first, comma, second = inputs.partition(",")
        if len(tags) == 2 and arrow and comma and "," not in second:
            summed = (set(first) & set(second)) - set(output)
            if tags[0] is not None and tags[1] is None and tags[0].weights and summed == {first[-1:]}:
                return self._product(given[1], tags[0], None)
            if tags == [None, None] and len(summed) == 1 and len(output) > 1:
                rows, columns = output[-2], output[-1]
                if rows not in second and columns not in first:
                    return self._product(given[1], None, None, dims=len(output))
        for tag in tags:
            self._poison(tag)
        return None

    # -- layers and operands

    def _is_learned(self, operand: Expression, depth: int = 3) -> bool:
        """A parameter, or made of one; there may be one per head."""
        return depth > 0 and any(
            (isinstance(item.value, Call) and "Parameter" in dotted(item.value.function))
            or self._is_learned(item.value, depth - 1)
            for name in names_in(operand)
            for start in _beginnings(name)
            for _, item in self.resolver.definitions(self.function, start)[0]
        )

    def _is_one_token(self, query: Expression) -> bool:
        """A class token alone asks: its scores are one row."""
        made = [query]
        if isinstance(query, Name):
            made += [item.value for item in self.resolver.assignments(self.function, query.dotted)]
        return any(_ONE_TOKEN.search(render(value)) for value in made)

    def _made_by(self, call: Call) -> Call | None:
        """The call that makes the layer that this one runs."""
        if isinstance(call.function, Call):
            return call.function
        name = dotted(call.function)
        if not name.startswith("self."):
            return None
        definitions, _ = self.resolver.definitions(self.function, name)
        made = definitions[0][1].value if len(definitions) == 1 else None
        return made if isinstance(made, Call) else None

    def _layer(self, call: Call, kind: str) -> Call | None:
        made = self._made_by(call)
        scope = self.function
        if made is not None and f"torch.nn.{kind}" in self.resolver.called(scope, made):
            return made
        return None

    def _module_softmax(self, call: Call) -> Call | None:
        return self._layer(call, "Softmax")

    def _is_dropout(self, call: Call) -> bool:
        last = dotted(call.function).rpartition(".")[2].lower()
        return "drop" in last or self._layer(call, "Dropout") is not None


def _is_root(operand: Expression) -> bool:
    """`size ** 0.5`, `size ** (1 / 2)`, `size ** -0.5`."""
    match operand:
        case Operation("**", (_, exponent)):
            return render(exponent).strip("()- ") in ("0.5", "1 / 2", ".5")
    return False


def _beginnings(name: str) -> Iterator[str]:
    """'self.scale.exp', 'self.scale' of the first."""
    parts = name.split(".")
    for length in range(len(parts), 1 if parts[0] == "self" else 0, -1):
        yield ".".join(parts[:length])


def _calls(value: Expression) -> Iterator[Call]:
    if isinstance(value, Call):
        yield value
    for part in parts_of(value):
        yield from _calls(part)


def _expressions(event: object) -> tuple[Expression, ...]:
    match event:
        case CallEvent(call, _):
            return (call,)
        case Assignment(_, value, _, _) | Return(value, _, _):
            return (value,)
        case _:
            return ()
