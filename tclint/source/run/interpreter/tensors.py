"""Tensors: operations that make, move and cast them, and operations that wait for their values."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.run.interpreter.expressions import Expressions
from tclint.source.run.values import (
    ClassValue,
    Constant,
    Device,
    Event,
    FunctionValue,
    Symbol,
    Thing,
    Union,
    Value,
    either,
    modules_in,
    options_of,
    root_of,
)
from tclint.source.syntax.tables import Call

_COMPARED = frozenset({"==", "!=", "<", "<=", ">", ">=", "not", "&", "|", "~"})
_DICTS = frozenset(
    {"builtins.dict", "collections.OrderedDict", "typing.TypedDict", "typing_extensions.TypedDict"}
)
_LARGEST_NEST = 3
_DTYPES = frozenset(
    f"torch.{name}"
    for name in [
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "float8_e4m3fn",
        "float8_e5m2",
    ]
)
_TENSOR_TYPES = {
    "Tensor": "torch.float32",
    "FloatTensor": "torch.float32",
    "HalfTensor": "torch.float16",
    "BFloat16Tensor": "torch.bfloat16",
    "DoubleTensor": "torch.float64",
    "LongTensor": "torch.int64",
    "IntTensor": "torch.int32",
    "ShortTensor": "torch.int16",
    "CharTensor": "torch.int8",
    "ByteTensor": "torch.uint8",
    "BoolTensor": "torch.bool",
}
_FORMATS = frozenset(
    {"torch.channels_last", "torch.channels_last_3d", "torch.contiguous_format", "torch.preserve_format"}
)


METADATA_ATTRIBUTES = frozenset(
    {"shape", "ndim", "dtype", "device", "requires_grad", "is_cuda", "layout", "names"}
)
"""Attributes of a tensor that the CPU knows without its values."""


class Tensors(Expressions):
    """Operations on tensors and on values that may be tensors."""

    def is_tensor(self, value: Value) -> bool:
        """Whether a value is a tensor; alternatives that are numbers or None do not count."""
        if isinstance(value, Thing):
            return value.kind == "tensor"
        if isinstance(value, Union):
            return any(isinstance(option, Thing) and option.kind == "tensor" for option, _ in value.options)
        return False

    def is_mask(self, value: Value) -> bool:
        """Whether a value is a boolean tensor, such as the result of a comparison."""
        if not isinstance(value, Thing) or value.kind != "tensor":
            return False
        if value.fields.get("@dtype") == Symbol("torch.bool"):
            return True
        made = value.made
        if made is None or made.kind != "op":
            return False
        return made.name in _COMPARED or (made.name == "*" and any(map(self.is_mask, made.inputs)))

    def tensor(
        self,
        kind: str,
        name: str,
        subject: Value | None,
        arguments: dict[str, Value],
        call: Call | None = None,
    ) -> Thing:
        """Record an operation and return the tensor that it makes."""
        event = self.happen(kind, name, subject, arguments, call)
        made = Thing("tensor", "", event)
        event.result = made
        return made

    def tensors_in(self, value: Value, depth: int = _LARGEST_NEST) -> Iterator[Thing]:
        """The tensors that a value is or holds."""
        for option, _ in options_of(value):
            if not isinstance(option, Thing):
                continue
            if option.kind == "tensor":
                yield option
            elif depth and option.kind in ("list", "tuple", "dict", "set"):
                for item in self.values_in(option):
                    yield from self.tensors_in(item, depth - 1)
            elif option.kind == "star":
                yield from self.tensors_in(option.fields["over"], depth)

    def wait(self, name: str, value: Value, call: Call | None = None) -> list[Event]:
        """Record that the CPU reads a value, unless it is known not to be a tensor; return the events."""
        found: list[Value] = list(self.tensors_in(value))
        if not found:
            found = [
                option
                for option, _ in options_of(value)
                if isinstance(option, Thing) and option.is_unknown and (option.made or option.operation)
            ]
        return [self.happen("wait", name, item, {}, call) for item in dict.fromkeys(found)]

    # -- attributes

    def attribute_of_tensor(self, value: Thing, name: str) -> Value:
        if name == "grad":
            made = self.tensor("grad", ".grad", value, {})
            value.fields["grad"] = made
            return made
        if name in ("data", "T", "mT", "H", "real", "imag"):
            return self.tensor("op", f".{name}", value, {})
        if name in METADATA_ATTRIBUTES:
            return self.operate(".", (value, Constant(name)), name)
        # A model's output has parts: `output.loss`.
        made = self.tensor("op", f".{name}", value, {})
        value.fields[name] = made
        return made

    # -- where things are

    def place(self, subject: Thing, name: str, given: dict[str, Value], call: Call) -> Value:
        """Move or cast a value, as `x.to(...)` and `model.half()` do: tensors are copied, modules changed in
        place.

        Args:
            given: the requested 'device', 'dtype', 'memory_format' and 'non_blocking'.
        """
        event = self.happen("to", name, subject, given, call)
        is_part_of_data = subject.operation is not None and root_of(subject).kind != "module"
        holds_modules = any(
            isinstance(item, Thing) and item.kind == "module" for item in subject.fields.values()
        )
        is_item = is_part_of_data or (subject.made is not None and subject.is_unknown and not holds_modules)
        if subject.kind == "tensor" or (subject.is_unknown and is_item):
            # An attribute or item of something unknown is taken as data; a call's result can also be a
            # module.
            is_part = subject.operation is not None and subject.operation[0] != "()"
            is_tensor = subject.kind == "tensor" or (is_part and "device" in given)
            result = Thing("tensor" if is_tensor else "", "", event)
            cells = result.fields
            for key, item in subject.fields.items():
                if isinstance(key, str) and key.startswith("@"):
                    cells[key] = item
        else:
            result, cells = subject, subject.fields
        parts = modules_in(subject) if result is subject and subject.kind == "module" else (result,)
        for part in parts:
            for key, argument in (("@device", "device"), ("@dtype", "dtype"), ("@layout", "memory_format")):
                if argument in given:
                    self.store.write(part.fields, key, given[argument])
        event.result = result
        return result

    def placing(self, arguments: list[Value], keywords: dict[str, Value]) -> dict[str, Value]:
        """The arguments of `to(...)` by keyword; positional ones are recognised by their values."""
        given = {
            key: value
            for key, value in keywords.items()
            if key in ("device", "dtype", "memory_format", "non_blocking", "copy")
        }
        for position, argument in enumerate(arguments):
            kinds = {self._place_of(option) for option, _ in options_of(argument)} - {""}
            if kinds == {"type"}:
                # `torch.cuda.FloatTensor` names the device as well as the dtype.
                types = [name for name in self.symbols(argument) if name.rpartition(".")[2] in _TENSOR_TYPES]
                given["dtype"] = either(*(Symbol(_TENSOR_TYPES[name.rpartition(".")[2]]) for name in types))
                given["device"] = either(*(Constant("cuda" if ".cuda." in name else "cpu") for name in types))
            elif kinds == {"dtype"}:
                given["dtype"] = argument
            elif kinds == {"memory_format"}:
                given["memory_format"] = argument
            elif kinds == {"tensor"}:
                given["other"] = argument
            elif isinstance(argument, Constant) and isinstance(argument.value, bool):
                given["non_blocking"] = argument
            elif kinds == {"device"} or position == 0:
                given["device"] = argument
        return given

    def _place_of(self, value: Value) -> str:
        if isinstance(value, Symbol):
            if value.name in _DTYPES:
                return "dtype"
            if value.name.startswith("torch.") and value.name.rpartition(".")[2] in _TENSOR_TYPES:
                return "type"
            return "memory_format" if value.name in _FORMATS else ""
        if isinstance(value, Constant):
            return (
                "device" if isinstance(value.value, str | int) and not isinstance(value.value, bool) else ""
            )
        if isinstance(value, Thing):
            if value.kind == "tensor":
                return "tensor"
            if value.operation is not None and value.operation[0] == ".":
                attribute = value.operation[1][1]
                if isinstance(attribute, Constant) and attribute.value in ("device", "dtype"):
                    return str(attribute.value)
        return ""

    def device(self, value: Value) -> Value:
        """The result of `torch.device(...)`."""
        found: list[Value] = []
        for option, _ in options_of(value):
            if isinstance(option, Constant) and isinstance(option.value, str):
                found.append(Device(option.value.partition(":")[0]))
            elif isinstance(option, Constant) and isinstance(option.value, int):
                found.append(Device("cuda"))
            else:
                found.append(self._device_in_text(option))
        return either(*found)

    def _device_in_text(self, value: Value) -> Value:
        """The device in a computed text: `f"cuda:{rank}"`, `"cuda:" + rank`, `"cuda:%d" % rank`."""
        if isinstance(value, Thing) and value.operation is not None:
            operator, operands = value.operation
            if operator in ("text", "+", "%") and operands and isinstance(operands[0], Constant):
                head = operands[0].value
                if isinstance(head, str) and head.startswith(("cuda", "cpu", "mps", "xpu")):
                    return Device(head.partition(":")[0])
        return value

    def kind_of_class(self, value: ClassValue) -> str:
        """The kind of a project class's objects, according to the library classes that it derives from."""
        for base in value.library_bases():
            if base.name in _DICTS:
                return "dict"
            spec = self.library.call(base.name)
            if spec is not None and spec.returns == "=module":
                return "module"  # what wraps a module is one
            if spec is not None and spec.returns and not spec.returns.startswith("="):
                return spec.returns
        runs = isinstance(value.find("forward"), FunctionValue) and value.find("__call__") is None
        return "module" if runs and value.is_derived else ""  # an unknown base calls its forward

    def wrapper_of(self, thing: Thing) -> Symbol | None:
        """The library's wrapper that the class of an object derives from, if the object has got a module."""
        bases = thing.cls.library_bases() if thing.cls is not None and "module" in thing.fields else ()
        specs = ((base, self.library.call(base.name)) for base in bases)
        return next((base for base, spec in specs if spec and spec.returns == "=module"), None)
