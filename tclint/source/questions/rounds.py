"""Rounds of loops: values that change from round to round, and events that share a round."""

from __future__ import annotations

from tclint.source.run.values import Thing, Value, options_of

_STEADY = frozenset({".", "isinstance", "hasattr", "type", "callable"})
"""Operations whose result depends on what an object is and not on its contents."""


def varies(value: Value) -> bool:
    """Whether a value is known to differ from round to round: it is a counter, a remainder or computed from a
    batch. A setting is the same in every round."""
    seen: set[Value] = set()
    pending = [value]
    while pending:
        for option, _ in options_of(pending.pop()):
            if not isinstance(option, Thing) or option in seen:
                continue
            seen.add(option)
            if option.kind == "tensor":
                return True
            if option.operation is not None:
                operator, operands = option.operation
                if operator in ("%", "each"):
                    return True
                if operator not in _STEADY:
                    pending.extend(operands)
            elif option.kind == "number":
                return True
            if option.made is not None and option.is_unknown:
                if option.made.kind == "batch":
                    return True
                pending.extend(option.made.inputs)
    return False
