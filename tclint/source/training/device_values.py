"""Which values of a function are tensors on the GPU, as far as the loss, the model's inputs and known
methods tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from tclint.source.context import SourceContext
from tclint.source.names.queries import words
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
    Operation,
    Other,
    Subscript,
    dotted,
    method_of,
    render,
)

_DEPTH = 60
"""Names, calls and operators followed."""


class Place(IntEnum):
    """Where a value is."""

    HOST = 0
    """A number, a string, an array of numpy, a tensor on the CPU."""
    UNKNOWN = 1
    DERIVED = 2
    """Made from tensors on the GPU by something unknown: numbers or tensors, or objects that hold them."""
    TENSOR = 3
    """A tensor on the GPU."""


TO_HOST = words("item tolist numpy cpu")
"""Methods of tensors that wait for the GPU and return a value of the CPU."""
_ABOUT = words("size dim numel element_size stride is_contiguous get_device data_ptr nelement ndimension")
_ATTRIBUTES_ON_HOST = words("shape dtype device ndim is_cuda requires_grad")
_BUILTINS_ON_HOST = words("float int bool str len round range format repr print isinstance hasattr type id")
_SAME = words(
    "mean sum detach clone float double half bfloat16 abs max min argmax argmin view reshape squeeze "
    "unsqueeze norm sqrt square pow exp log std var any all eq ne gt ge lt le mul div add sub clamp flatten "
    "contiguous softmax sigmoid data long int bool type_as type item_ topk"
)
"""Methods of tensors that return tensors of the same device."""
_OF_NUMPY = ("np.", "numpy.", "math.", "random.", "sklearn.", "scipy.", "time.", "os.", "json.", "copy.")


class DeviceValues:
    """Answers about one function.

    Args:
        known: names whose place is known: the loss, arguments that a caller passes.
    """

    def __init__(
        self, context: SourceContext, function: Function, known: Mapping[str, tuple[int, Place]]
    ) -> None:
        self.context = context
        self.function = function
        self._known = known
        """Name -> (node id up to which that is certain, place)."""
        self._latest: dict[str, list[Assignment]] = {}
        for event in function.assignments:
            for target in event.targets:
                self._latest.setdefault(target, []).append(event)
        self._found: dict[tuple[str, int], Place] = {}

    def place(self, expression: Expression, before: int, depth: int = _DEPTH) -> Place:
        """Where an expression's value is when it is read just before a node id."""
        if depth <= 0:
            return Place.UNKNOWN
        match expression:
            case Literal():
                return Place.HOST
            case Name(name):
                return self._of_name(name, before, depth)
            case Attribute(value, name):
                return self._of_attribute(self.place(value, before, depth - 1), name)
            case Call():
                return self._of_call(expression, before, depth)
            case Operation(symbol, operands):
                return self._of_operation(symbol, operands, before, depth)
            case Subscript(value, _):
                return self.place(value, before, depth - 1)
            case Choice(_, first, second):
                return min(self.place(first, before, depth - 1), self.place(second, before, depth - 1))
            case Other("string" | "slice", _):
                return Place.HOST
            case Other("iterate" | "comprehension" | "star", parts) | Collection(_, parts, _):
                return self._derived(parts, before, depth)
            case _:
                return Place.UNKNOWN

    def _of_name(self, name: str, before: int, depth: int) -> Place:
        """The last assignment before the place decides."""
        key = (name, before)
        if key not in self._found:
            self._found[key] = Place.UNKNOWN  # a name that is made of itself
            self._found[key] = self._last_value(name, before, depth)
        return self._found[key]

    def _last_value(self, name: str, before: int, depth: int) -> Place:
        if name.endswith(".grad"):
            return Place.TENSOR
        written = [event for event in self._latest.get(name, ()) if event.node_id < before]
        until, known = self._known.get(name, (-1, Place.UNKNOWN))
        if written:
            last = written[-1]
            if last.node_id <= until:
                return known
            found = self.place(last.value, last.node_id, depth - 1)
            if last.operator == "[]":
                held = self.place(Name(name), last.node_id, depth - 1)
                return min(max(found, held), Place.DERIVED) if max(found, held) > Place.UNKNOWN else held
            if last.operator:
                return max(found, self.place(Name(name), last.node_id, depth - 1))
            return min(found, Place.DERIVED) if last.unpacked else found
        if until >= 0:
            return known
        head, dot, last_part = name.rpartition(".")
        if dot and head not in ("self", "cls"):
            return self._of_attribute(self.place(Name(head), before, depth - 1), last_part)
        return Place.UNKNOWN

    def _of_attribute(self, held: Place, name: str) -> Place:
        if name == "grad":
            return Place.TENSOR
        if name in _ATTRIBUTES_ON_HOST:
            return Place.HOST
        if name == "data" and held is Place.TENSOR:
            return held
        return min(held, Place.DERIVED)

    def _derived(self, parts: Iterable[Expression], before: int, depth: int) -> Place:
        found = max((self.place(part, before, depth - 1) for part in parts), default=Place.HOST)
        return min(found, Place.DERIVED)

    def _of_operation(self, symbol: str, operands: tuple[Expression, ...], before: int, depth: int) -> Place:
        if symbol in ("is", "is not", "in", "not in", "not"):
            return Place.HOST
        if symbol == "%" and isinstance(operands[0], Literal | Other):
            return Place.HOST
        places = [self.place(operand, before, depth - 1) for operand in operands]
        if symbol in ("and", "or"):
            return min(places)
        return max(places)

    def _of_call(self, call: Call, before: int, depth: int) -> Place:
        receiver, method = method_of(call)
        name = dotted(call.function)
        if method in TO_HOST or method in _ABOUT or (receiver is None and method in _BUILTINS_ON_HOST):
            return Place.HOST
        if name.startswith(_OF_NUMPY):
            return Place.HOST
        if method == "clip_grad_norm_":
            return Place.TENSOR
        if receiver is not None:
            if method == "cuda":
                return Place.TENSOR
            on = self.place(receiver, before, depth - 1)
            if method == "to":
                return self._moved(call, on)
            if method in _SAME and on > Place.UNKNOWN:
                return on
            if method in ("values", "items", "get", "pop") and on > Place.UNKNOWN:
                return Place.DERIVED
        arguments = [
            self.place(argument.value, before, depth - 1)
            for argument in call.arguments
            if not isinstance(argument.value, Literal)
        ]
        most = max(arguments, default=Place.UNKNOWN)
        if most <= Place.UNKNOWN:
            return Place.UNKNOWN
        called = self.context.resolver.called(self.function, call)
        if any(item.startswith("torch.") and item.count(".") == 1 for item in called):
            return most
        return self._returned(call) if self._is_local(call) else Place.DERIVED

    def _is_local(self, call: Call) -> bool:
        return bool(self.context.resolver.local_functions(self.function, call.function))

    def _returned(self, call: Call) -> Place:
        """A function of the file that reads values on the CPU may return numbers."""
        for local in self.context.resolver.local_functions(self.function, call.function):
            if any(method_of(event.call)[1] in TO_HOST for event in local.calls):
                return Place.UNKNOWN
        return Place.DERIVED

    def _moved(self, call: Call, on: Place) -> Place:
        """`x.to(device)`, `x.to("cpu")`, `x.to(torch.float16)`."""
        given = next((item.value for item in call.arguments if item.keyword in ("", "device")), None)
        if given is None:
            return on
        devices = [
            value
            for value in self.context.resolver.evaluate(self.function, given).values
            if isinstance(value, str)
        ]
        if devices:
            on_gpu = [value.startswith("cuda") for value in devices]
            return Place.TENSOR if all(on_gpu) else Place.DERIVED if any(on_gpu) else Place.HOST
        text = render(given).lower()
        if "cpu" in text:
            return Place.HOST
        return max(on, Place.DERIVED) if text.endswith(("device", "rank", "gpu")) else on
