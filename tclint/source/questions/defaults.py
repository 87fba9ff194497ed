"""Decides what a program does by default on a GPU, and names the options whose defaults decide."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.run.values import (
    Atom,
    ClassValue,
    Constant,
    FunctionValue,
    ModuleValue,
    Option,
    Path,
    Symbol,
    Thing,
    Union,
    Value,
    options_of,
)

_TRUE_ON_GPU = frozenset(
    {"torch.cuda.is_available", "torch.cuda.is_bf16_supported", "torch.accelerator.is_available"}
)
_DEVICES = {"cuda": True, "gpu": True, "cpu": False, "mps": False}


class Defaults:
    """Evaluates values by default, on a GPU that has bfloat16, and notes the options whose defaults
    decided."""

    def __init__(self) -> None:
        self.named: dict[str, None] = {}
        """The options and variables whose defaults decided, in order."""
        self._values: dict[int, tuple[Value, Value | None]] = {}
        self._truths: dict[int, tuple[Value, bool | None]] = {}
        """What was evaluated, by id: guards of alternatives name the values that other guards name too."""

    def value(self, value: Value | None) -> Value | None:
        """The one alternative that a value is by default; None if there are several or it is unknown."""
        if value is None:
            return None
        known = self._values.get(id(value))
        if known is None:
            known = self._values[id(value)] = value, self._value(value)
        return known[1]

    def _value(self, value: Value) -> Value | None:
        if not isinstance(value, Union):
            if isinstance(value, Thing) and value.is_unknown:
                return self._computed(value)
            return value
        options = [option for option in value.options if self.follows(option.guard) is not False]
        unknown = {option.value for option in options if _is_open(option)}
        known = [
            option.value
            for option in options
            # What takes the place of a missing argument is no default where an unknown one is given.
            if option.value not in unknown and not any(atom.subject in unknown for atom in option.guard)
        ]
        if len(known) < len(options) and known:
            self._name(options)
        found = {self.value(option) for option in known}
        return found.pop() if len(found) == 1 else None

    def constant(self, value: Value | None) -> object:
        """The constant that a value is by default; None if it is no constant."""
        found = self.value(value)
        return found.value if isinstance(found, Constant) else None

    def truth(self, value: Value | None) -> bool | None:
        """Whether a value is true by default; None if that is decided at run time."""
        if value is None:
            return None
        known = self._truths.get(id(value))
        if known is None:
            known = self._truths[id(value)] = value, self._truth(value)
        return known[1]

    def _truth(self, value: Value) -> bool | None:
        if isinstance(value, Thing) and value.operation is not None:
            decided = self._operation(*value.operation)
            if decided is not None:
                return decided
        found = self.value(value)
        if isinstance(found, Constant):
            return bool(found.value)
        if isinstance(found, FunctionValue | ClassValue | ModuleValue | Symbol):
            return True
        return True if isinstance(found, Thing) and bool(found.kind) and found.kind != "number" else None

    def follows(self, path: Path) -> bool | None:
        """Whether all tests of a path hold by default: False if one fails, else None if one is unknown."""
        known = [self.holds(atom) for atom in path]
        if False in known:
            return False
        return None if None in known else True

    def holds(self, atom: Atom) -> bool | None:
        """Whether a test has the outcome of an atom by default; None if that is unknown."""
        if atom.test == "truth":
            found = self.truth(atom.subject)
        elif isinstance(atom.other, Value):
            found = self._operation(atom.test, (atom.subject, atom.other))
        else:
            found = None
        return None if found is None else found is atom.holds

    # -- what is computed

    def _computed(self, value: Thing) -> Value | None:
        if value.operation is None:
            return None
        operator, operands = value.operation
        if operator in ("and", "or"):
            return self._chosen(operator, operands)
        decided = self._operation(operator, operands)
        return None if decided is None else Constant(decided)

    def _chosen(self, operator: str, operands: tuple[Value, ...]) -> Value | None:
        """The operand that `a or b` or `a and b` gives, which need not be a boolean."""
        for operand in operands[:-1]:
            is_true = self.truth(operand)
            if is_true is None:
                return None
            if is_true is (operator == "or"):
                return self.value(operand)
        return self.value(operands[-1])

    def _operation(self, operator: str, operands: tuple[Value, ...]) -> bool | None:
        if operator == "()" and isinstance(operands[0], Symbol):
            return True if operands[0].name in _TRUE_ON_GPU else None
        if operator == "not":
            inner = self.truth(operands[0])
            return None if inner is None else not inner
        if operator in ("and", "or"):
            parts = [self.truth(operand) for operand in operands]
            decisive = operator == "or"
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        if operator in ("==", "is", "!=", "is not", "in", "not in") and len(operands) == 2:
            found = self._compared(operands[0], operands[1], operator.removeprefix("not ") == "in")
            negative = operator in ("!=", "is not", "not in")
            return None if found is None else found is not negative
        return None

    def _compared(self, left: Value, right: Value, contained: bool) -> bool | None:
        one, other = self.value(left), self.value(right)
        if isinstance(one, Constant) and isinstance(other, Constant):
            if not contained:
                return bool(one.value == other.value)
            return (
                one.value in other.value
                if isinstance(one.value, str) and isinstance(other.value, str)
                else None
            )
        for constant, unknown in ((one, other), (other, one)):
            if isinstance(constant, Constant) and isinstance(constant.value, str) and unknown is None:
                # An unknown value compared with a device's name is taken to be a GPU.
                return _DEVICES.get(constant.value)
        if isinstance(one, Symbol) and isinstance(other, Symbol):
            return one.name == other.name
        none = Constant(None)
        if none in (one, other) and None not in (one, other):
            return one == other
        return None

    def _name(self, options: list[Option]) -> None:
        for option in options:
            if _is_open(option) and isinstance(option.value, Thing):
                chosen = option.value.fields.get("@option")
                name = str(chosen.value) if isinstance(chosen, Constant) else option.value.name
                if name and name != "outside":
                    self.named[name] = None

    @property
    def words(self) -> str:
        """', the default of args.amp', or ''."""
        return f", the default of {' and '.join(self.named)}" if self.named else ""


def _is_open(option: Option) -> bool:
    """Whether an option is an unknown value that may replace the default."""
    value = option.value
    return (
        isinstance(value, Thing)
        and value.is_unknown
        and (value.operation is None or "@chosen by" in value.fields)
    )


def constants_in(value: Value) -> Iterator[Constant]:
    """The constants that a value can be, among other values."""
    for option, _ in options_of(value):
        if isinstance(option, Constant):
            yield option
