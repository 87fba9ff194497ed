"""What the recorder needs to know about an operator: its schema, read once, and the kind of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from tclint.core.toml import packaged_toml
from tclint.graph.ops import OpKind
from tclint.tracing.values.constants import FACTORIES
from tclint.tracing.values.formats import dtype_name

# In-place operators that change the tensor's own shape or strides: their meta kernel has to run.
_RESHAPES_IN_PLACE = frozenset(
    {
        "as_strided_", "detach_", "rename_", "resize_", "resize_as_", "set_", "sparse_resize_", "squeeze_",
        "swapaxes_", "swapdims_", "t_", "transpose_", "unsafe_set_", "unsqueeze_",
    }
)  # fmt: skip


# Says where a tensor lives, which on the recording machine is never the GPU that is priced.
_PLACEMENT = frozenset({"device", "pin_memory", "non_blocking", "generator"})


Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
"""What an operator is called with, by place and by name."""


class Argument(NamedTuple):
    """An argument of an operator's schema."""

    name: str
    is_placement: bool


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """An operator's name and how it treats memory."""

    full_name: str
    """Without the namespace, with the trailing underscore of in-place operators: 'add_'."""
    name: str
    """As Op.name has it: 'add'."""
    in_place: bool
    reshapes_in_place: bool
    returns_view: bool
    mutates: bool
    is_factory: bool
    arguments: tuple[Argument, ...]
    """In schema order."""
    defaults: dict[str, Any]
    """What Op.attributes has for arguments that are not given. Those that have to be given and are no tensors
    stand here too, as None, for their place in the order."""
    operator: str
    """As Op.operator has it: 'aten::add_.Tensor'."""
    function: Any
    """The operator itself, an OpOverload."""


# By identity, because overloads hash themselves in Python; the facts keep them, and so their ids, in use.
_FACTS: dict[int, OperatorFacts] = {}


def facts_of(function: Any) -> OperatorFacts | None:
    """Facts of an OpOverload; None for higher-order operators, which have no schema."""
    known = _FACTS.get(id(function))
    if known is not None:
        return known
    schema = getattr(function, "_schema", None)
    if schema is None:
        return None
    facts = _FACTS[id(function)] = _read_facts(function, schema)
    return facts


def _read_facts(function: Any, schema: Any) -> OperatorFacts:
    full_name = schema.name.split("::", 1)[1]
    arguments = schema.arguments
    in_place = (
        full_name.endswith("_")
        and not full_name.endswith("__")
        and bool(arguments)
        and arguments[0].alias_info is not None
        and arguments[0].alias_info.is_write
    )
    # `x += y` dispatches as __iadd__-like overloads of some operators (and, or, lshift ...).
    if full_name.startswith("__i") and full_name.endswith("__") and arguments[0].alias_info is not None:
        in_place = True
    return OperatorFacts(
        full_name=full_name,
        name=_base_name(full_name, in_place),
        in_place=in_place,
        reshapes_in_place=full_name in _RESHAPES_IN_PLACE,
        returns_view=any(
            result.alias_info is not None and not result.alias_info.is_write for result in schema.returns
        ),
        mutates=schema.is_mutable,
        # `normal` of given means is none.
        is_factory=full_name in FACTORIES and any(argument.name == "device" for argument in arguments),
        arguments=tuple(Argument(argument.name, argument.name in _PLACEMENT) for argument in arguments),
        defaults={
            argument.name: json_value(argument.default_value)
            for argument in arguments
            if argument.name not in _PLACEMENT
            and (argument.has_default_value() or "Tensor" not in str(argument.type))
        },
        operator=f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name,
        function=function,
    )


def required_facts(function: Any) -> OperatorFacts:
    """Facts of an OpOverload.

    Raises:
        TypeError: it is no OpOverload.
    """
    facts = facts_of(function)
    if facts is None:
        raise TypeError(f"{function} has no schema")
    return facts


def json_value(value: Any) -> Any:
    """An argument that is no tensor, as Op.attributes has it: JSON types only."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return str(value).removeprefix("torch.")


def is_whole_slice(facts: OperatorFacts, args: Args) -> bool:
    """Whether the call is the slice of a `:`: from the first element to whatever the last one is."""
    if facts.full_name != "slice" or len(args) < 4:
        return False
    _, _, first, end, *step = args
    return first in (0, None) and (end is None or end >= _OPEN_END) and step in ([], [1])


_OPEN_END = 2**63 - 1


def is_composite(function: Any) -> bool:
    """Whether the operator has a decomposition in C++ (CompositeImplicitAutograd)."""
    has_kernel = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
    return bool(has_kernel and has_kernel(function.name(), "CompositeImplicitAutograd"))


_DUNDER_NAMES = {
    "__and__": "bitwise_and",
    "__iand__": "bitwise_and",
    "__or__": "bitwise_or",
    "__ior__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__ixor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__ilshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__irshift__": "bitwise_right_shift",
}


def _base_name(full_name: str, in_place: bool) -> str:
    if full_name in _DUNDER_NAMES:
        return _DUNDER_NAMES[full_name]
    return full_name.rstrip("_") if in_place else full_name


# Read on import, which a worker does once for all models.
_TABLES: dict[Any, list[str]] = packaged_toml("tclint.tracing.record", "op_kinds.toml")
VIEW_OR_COPY = frozenset(_TABLES.pop("view_or_copy"))
KINDS: dict[str, OpKind] = {name: kind for kind, names in _TABLES.items() for name in names}


def kind_of(name: str, *, aliases_input: bool) -> OpKind:
    """The kind of an operator by its ATen base name; 'other' when the table does not know it.

    Args:
        name: 'conv2d', 'add', ... without overload and trailing underscore.
        aliases_input: the output shares memory with an input; decides 'view' or 'copy' for operators such
            as reshape that do either.
    """
    if name in VIEW_OR_COPY:
        return "view" if aliases_input else "copy"
    return KINDS.get(name, "other")
