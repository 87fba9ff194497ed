"""Which functions of the project a call runs."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.context import SourceContext
from tclint.source.names.queries import PLACING, makers
from tclint.source.syntax.tables import Call, Function, dotted, method_of


def functions_run_by(
    context: SourceContext, function: Function, call: Call, holding: tuple[bytes, ...]
) -> Iterator[tuple[SourceContext, Function]]:
    """Functions that a call runs, with their files: the function itself, or the forward of its object.

    Args:
        holding: of other files, only those that hold one of these tokens.
    """
    for where, made in context.definitions_of(function, call.function, holding):
        if made.kind == "function":
            yield where, made
    yield from _methods(context, function, dotted(call.function), ("forward", "__call__"), holding)
    receiver, method = method_of(call)
    if receiver is not None and method not in PLACING:
        yield from _methods(context, function, dotted(receiver), (method,), holding)


def _methods(
    context: SourceContext,
    function: Function,
    name: str,
    methods: tuple[str, ...],
    holding: tuple[bytes, ...],
) -> Iterator[tuple[SourceContext, Function]]:
    """Methods that the classes define of which a name is an object."""
    for scope, value in context.resolver.origins_of(function, name) if name else ():
        for call in makers(value):
            for where, made in context.definitions_of(scope, call.function, holding):
                for method in methods if made.kind == "class" else ():
                    for index in where.tables.children.get(made.index, {}).get(method, ()):
                        yield where, where.tables.functions[index]
