"""Small questions about calls, expressions, words and paths."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tclint.source.syntax.tables import (
    Argument,
    Attribute,
    Call,
    Choice,
    Closure,
    Expression,
    Function,
    Name,
    Operation,
    Subscript,
    method_of,
    parts_of,
)

ON_GPU = re.compile(rb"cuda|accelerat|[Ff]abric|deepspeed|lightning|\bdevice\b|get_device")
"""A file without any of these says nothing of a GPU: neither of CUDA nor of what chooses the device."""


class Called(NamedTuple):
    """A call of something with a known qualified name."""

    qualified: str
    call: Call
    function: Function
    block: int
    position: int


def words(text: str) -> frozenset[str]:
    """A set of words, written in one string."""
    return frozenset(text.split())


def keyword(call: Call, name: str, position: int = -1) -> Expression | None:
    """A keyword argument, or the positional one in its place."""
    for argument in call.arguments:
        if argument.keyword == name:
            return argument.value
    if position >= 0:
        positional = [argument for argument in call.arguments if not argument.keyword]
        if len(positional) > position and not any(argument.star for argument in positional[: position + 1]):
            return positional[position].value
    return None


def bound(call: Call, parameters: Sequence[str]) -> dict[str, Expression]:
    """What a call passes by parameter; those are named in the order in which arguments fill them."""
    found: dict[str, Expression] = {}
    for position, argument in enumerate(call.arguments):
        name = argument.keyword or (parameters[position] if position < len(parameters) else "")
        if name and not argument.star:
            found.setdefault(name, argument.value)
    return found


def has_star(call: Call) -> bool:
    """`*args` or `**kwargs` may bring any argument."""
    return any(argument.star for argument in call.arguments)


def positional(call: Call) -> tuple[Argument, ...]:
    return tuple(argument for argument in call.arguments if not argument.keyword and not argument.star)


def root_name(expression: Expression) -> str:
    """`batch` of `batch["image"][0]` or `batch.image`; '' without a name at the root."""
    while isinstance(expression, Subscript | Attribute):
        expression = expression.value
    return expression.dotted.split(".", 1)[0] if isinstance(expression, Name) else ""


def contains(expression: Expression, test: Callable[[Expression], bool]) -> bool:
    """Whether some part of an expression passes a test."""
    return test(expression) or any(contains(part, test) for part in parts_of(expression))


def unpacks_positions(call: Call) -> bool:
    """`*args` may fill any position; `**kwargs` names nothing that the call gives itself."""
    return any(argument.star == "*" for argument in call.arguments)


def names_in(expression: Expression) -> set[str]:
    """Dotted names that an expression reads."""
    found: set[str] = set()
    pending: list[Expression] = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            found.add(part.dotted)
        elif not isinstance(part, Closure):
            pending.extend(parts_of(part))
    return found


def is_test_path(path: str) -> bool:
    """Whether a file is a test by its name or the folder it lies in."""
    folder, name = os.path.split(path.lower())
    return (
        name.startswith(("test_", "tests", "conftest"))
        or name.endswith("_test.py")
        or os.path.basename(folder) in ("test", "tests", "testing", "unit_tests", "unittests")
    )


def any_word(text: str, parts: Iterable[str]) -> bool:
    lowered = text.lower()
    return any(part in lowered for part in parts)


WRAPPERS = words(
    "DataParallel DistributedDataParallel DDP DP FullyShardedDataParallel FSDP convert_sync_batchnorm "
    "convert_syncbn_model compile prepare"
)
"""Last parts of the names of what is called like the module that it is given."""
PLACING = words(
    "cuda to cpu train eval half bfloat16 float double requires_grad_ apply module share_memory to_empty"
)
"""Methods of modules that return the module."""


def inner_model(call: Call) -> Expression | None:
    """`Net()` of `DDP(Net())` and of `Net().cuda()`; None of other calls."""
    receiver, method = method_of(call)
    if method in WRAPPERS:
        return keyword(call, "module", 0) or keyword(call, "model")
    return receiver if method in PLACING else None


def makers(value: Expression | None) -> Iterator[Call]:
    """The calls that may make a model, outermost first: `DDP(Net().cuda())`, `Net().cuda()`, `Net()`."""
    while isinstance(value, Call):
        yield value
        value = inner_model(value)


def unplaced(value: Expression) -> Expression:
    """`nn.BCELoss()` of `nn.BCELoss().cuda()`."""
    return list(makers(value))[-1] if isinstance(value, Call) else value


def leaves(expression: Expression) -> Iterator[Expression]:
    """What a value can be: both branches of a choice, the operands of `or` and `and`."""
    match expression:
        case Choice(_, first, second):
            yield from leaves(first)
            yield from leaves(second)
        case Operation("or" | "and", operands):
            for operand in operands:
                yield from leaves(operand)
        case _:
            yield expression
