"""Objects of configuration: which class of a file an expression is one of, and what that gives a field."""

from __future__ import annotations

import re

from tclint.source.context import SourceContext
from tclint.source.names.queries import Condition, has_star, positional
from tclint.source.names.resolve import Symbol
from tclint.source.syntax.tables import Call, Expression, Function, Name, dotted

_CONFIGURES = re.compile(r"config|cfg|settings|hparams|params|args|arguments", re.IGNORECASE)
"""In names of classes that hold options."""
_DEPTH = 5
"""Names and parameters followed from an object to the class it is made of."""


def known_values(context: SourceContext, scope: Function, name: str) -> tuple[object, ...]:
    """What a configuration class gives a field, or another file a constant, where nothing else in the file
    does."""
    if assigned(context, name.rpartition(".")[2]):
        return ()
    return field_values(context, scope, name) or imported_values(context, scope, name)


def field_values(context: SourceContext, scope: Function, name: str) -> tuple[object, ...]:
    """What the class of `config` gives `config.field` by default; empty where the class is not known, where
    it is made with arguments in no plain order, or where another file of the project speaks of the field."""
    root, _, field = name.rpartition(".")
    made = _class_of(context, scope, root, field, _DEPTH) if root else None
    if made is None or any(
        _speaks_of(context, path, field) for path in context.neighbours.importing(made.name)
    ):
        return ()
    calls = context.resolver.callers.get(made.index, ())
    if any(positional(event.call) or has_star(event.call) for _, event in calls):
        return ()
    return _defaults(context, made, field)


def imported_values(context: SourceContext, scope: Function, name: str) -> tuple[object, ...]:
    """What another file of the project gives a constant of its module (`config.BATCH_SIZE`) or a field of
    its class (`CFG.batch_size`); empty where this file gives it another value."""
    if not name or assigned(context, name.rpartition(".")[2]):
        return ()
    values = context.resolver.evaluate(scope, Name(name)).values
    return tuple(value for value in values if not isinstance(value, Symbol))


def switched_off(context: SourceContext, scope: Function, conditions: tuple[Condition, ...]) -> bool:
    """Whether a condition asks for an option that a class of the project, or a constant of another file,
    sets the other way for good: `class CFG: apex = False`."""
    for condition in conditions:
        root, _, field = condition.text.rpartition(".")
        makers = context.resolver.local_functions(scope, Name(root)) if root else ()
        if len(makers) == 1 and makers[0].kind == "class" and not assigned(context, field):
            values = _defaults(context, makers[0], field)
        else:
            values = () if makers else imported_values(context, scope, condition.text)
        if len(values) == 1 and isinstance(values[0], bool) and values[0] is not condition.holds:
            return True
    return False


def _class_of(context: SourceContext, scope: Function, root: str, field: str, depth: int) -> Function | None:
    """The class of the file that is named so, or that an object of this name is made of."""
    if depth <= 0 or not root:
        return None
    resolver = context.resolver
    classes = [item for item in resolver.local_functions(scope, Name(root)) if item.kind == "class"]
    if classes:
        return classes[0] if len(classes) == 1 else None
    owner = resolver.owner(scope, root)
    parameter = next((item for item in owner.parameters if item.name == root), None) if owner else None
    if owner is not None and parameter is not None:
        if parameter.annotation is not None:
            return _class_of(context, owner, dotted(parameter.annotation), field, depth - 1)
        given = list(resolver.passed(owner, root))
    else:
        given = [(place, item.value) for place, item in resolver.definitions(scope, root)[0]]
    found = {
        made.index: made
        for place, value in given
        if (made := _made_of(context, place, value, field, depth - 1)) is not None
    }
    if not found and (parameter is not None or given):
        # What is passed is not seen: the only configuration of the file that has the field.
        found = {
            function.index: function
            for function in context.tables.functions
            if function.kind == "class"
            and _CONFIGURES.search(function.name)
            and _defaults(context, function, field)
        }
    return next(iter(found.values())) if len(found) == 1 else None


def _made_of(
    context: SourceContext, scope: Function, value: Expression, field: str, depth: int
) -> Function | None:
    if isinstance(value, Call):
        makers = context.resolver.local_functions(scope, value.function)
        return makers[0] if len(makers) == 1 and makers[0].kind == "class" else None
    return _class_of(context, scope, value.dotted, field, depth) if isinstance(value, Name) else None


def _defaults(context: SourceContext, configuration: Function, field: str) -> tuple[object, ...]:
    """What a class gives a field: in its body, or as the default of a parameter that it stores."""
    resolver = context.resolver
    values: list[object] = []
    for item in resolver.assignments(configuration, field):
        values += resolver.evaluate(configuration, item.value).values
    for member in context.tables.functions:
        if member.parent != configuration.index or member.name != "__init__":
            continue
        stored = resolver.assignments(member, f"self.{field}")
        for parameter in member.parameters:
            if parameter.default is not None and any(dotted(item.value) == parameter.name for item in stored):
                values += resolver.evaluate(member, parameter.default).values
        values += [
            value
            for item in stored
            if not isinstance(item.value, Name)
            for value in resolver.evaluate(member, item.value).values or (None,)
        ]
    return tuple(dict.fromkeys(values))


def assigned(context: SourceContext, field: str) -> bool:
    """The file assigns a field of that name of some object: `cfg.field = ...`."""
    return any(
        name.endswith(f".{field}") and not name.startswith("self.")
        for function in context.tables.functions
        for event in function.events
        for name in getattr(event, "targets", ())
    )


def _speaks_of(context: SourceContext, path: str, field: str) -> bool:
    other = context.project.context_of(path)
    return other is None or any(field in line or "**" in line for line in other.lines())
