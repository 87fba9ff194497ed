"""Which functions of the project a call runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.source.syntax.tables import Call, Expression, Function, dotted, method_of

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

_PLACING = ("to", "cuda")
"""Methods of modules that return the module."""


def functions_run_by(
    context: SourceContext, function: Function, call: Call, tokens: tuple[bytes, ...]
) -> Iterator[tuple[SourceContext, Function]]:
    """Functions that a call runs, with their files: the function itself, or the forward of its object.

    Args:
        tokens: of other files, only those that hold one of them.
    """
    for where, made in definitions_of(context, function, call.function, tokens):
        if made.kind == "function":
            yield where, made
    yield from _methods(context, function, dotted(call.function), ("forward", "__call__"), tokens)
    receiver, method = method_of(call)
    if receiver is not None and method not in _PLACING:
        yield from _methods(context, function, dotted(receiver), (method,), tokens)


def definitions_of(
    context: SourceContext, function: Function, called: Expression, tokens: tuple[bytes, ...]
) -> Iterator[tuple[SourceContext, Function]]:
    """Functions and classes that a name can mean: of this file, or imported from one of the project."""
    local = context.resolver.local_functions(function, called)
    for item in local:
        yield context, item
    name = dotted(called)
    if local or not name:
        return
    for qualified in context.resolver.qualified(function, name):
        if not qualified.startswith("torch."):
            found = context.project.definition(qualified, tokens)
            if found is not None:
                yield found


def _methods(
    context: SourceContext, function: Function, name: str, methods: tuple[str, ...], tokens: tuple[bytes, ...]
) -> Iterator[tuple[SourceContext, Function]]:
    """Methods that the classes define of which a name is an object."""
    for scope, value in context.origins_of(function, name) if name else ():
        if not isinstance(value, Call):
            continue
        receiver, last = method_of(value)
        maker = receiver if last in _PLACING and isinstance(receiver, Call) else value
        for where, made in definitions_of(context, scope, maker.function, tokens):
            if made.kind != "class":
                continue
            for method in methods:
                for index in where.tables.children.get(made.index, {}).get(method, ()):
                    yield where, where.tables.functions[index]
