"""What calls pass for the parameters of functions and classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.source.syntax.tables import Call, Expression, Function

if TYPE_CHECKING:
    from tclint.source.context import SourceContext


def arguments_of(context: SourceContext, owner: Function, name: str) -> Iterator[tuple[Expression, Function]]:
    """(argument, caller) of what functions of the file pass for a parameter."""
    listed = parameters(context, owner)
    if name not in {item.name for item in owner.parameters}:
        return
    called = owner
    if owner.name == "__init__" and owner.parent >= 0:
        called = context.tables.functions[owner.parent]
    for caller, event in context.program.callers.get(called.index, ()):
        value = passed_for(event.call, listed, name)
        if value is not None:
            yield value, caller


def parameters(context: SourceContext, owner: Function) -> list[str]:
    """The names that a call's positional arguments fill, in order."""
    listed = [item.name for item in owner.parameters if not item.star]
    is_method = owner.parent >= 0 and context.tables.functions[owner.parent].kind == "class"
    return listed[1:] if is_method else listed


def passed_for(call: Call, listed: list[str], name: str) -> Expression | None:
    """What a call passes for a parameter."""
    for position, argument in enumerate(call.arguments):
        if argument.star:
            continue
        if (argument.keyword or (listed[position] if position < len(listed) else "")) == name:
            return argument.value
    return None
