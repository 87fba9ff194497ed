"""The tests of a program: which of them must hold for something to happen, and which exclude each other."""

from __future__ import annotations

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
    join,
)

_TRUE_KINDS = frozenset({"module", "optimizer", "scaler", "autocast", "device", "function", "loss"})
_ALIKE = frozenset({Constant, Symbol})
"""Values that are compared by what they stand for; all others are compared by identity."""
_POSITIVE = {"!=": "==", "is not": "is", "not in": "in"}


def atoms(value: Value, holds: bool) -> Path:
    """The tests, with their outcomes, that follow from a value being true (or false)."""
    operation = value.operation if isinstance(value, Thing) else None
    if operation is None:
        return () if isinstance(value, Constant) else (Atom("truth", value, None, holds),)
    operator, operands = operation
    if operator == "not":
        return atoms(operands[0], not holds)
    if operator == ("and" if holds else "or"):
        # The test as a whole is kept as well, since the other branch only knows that the whole is false.
        parts = (atom for operand in operands for atom in atoms(operand, holds))
        return (Atom("truth", value, None, holds), *parts)
    if operator in _POSITIVE:
        operator, holds = _POSITIVE[operator], not holds
    if operator in ("==", "is", "in") and len(operands) == 2:
        subject, other = operands
        if isinstance(subject, Constant):
            subject, other = other, subject
        if isinstance(other, Constant) and isinstance(other.value, bool) and operator != "in":
            return atoms(subject, holds is other.value)
        return (Atom(operator, subject, other, holds),)
    return (Atom("truth", value, None, holds),)


def exclude(first: Path, second: Path) -> bool:
    """Whether the tests of two paths cannot all hold at once."""
    if not first or not second:
        return False
    for test, subject, other, holds in first:
        for test_, subject_, other_, holds_ in second:
            if subject_ is not subject and (type(subject) not in _ALIKE or subject_ != subject):
                continue
            if test_ != test:
                continue
            same = other_ is other or other_ == other
            if same and holds_ is not holds:
                return True
            others = isinstance(other, Constant) and isinstance(other_, Constant) and not same
            if others and holds and holds_ and test in ("==", "is"):
                return True
    return False


def covers(paths: list[Path]) -> bool:
    """Whether one of several paths is taken whatever the tests give."""
    if any(not path for path in paths):
        return True
    if not paths:
        return False
    atom = paths[0][0]
    return all(
        covers([tuple(item for item in path if item != side) for path in paths if side.opposite not in path])
        for side in (atom, atom.opposite)
    )


def truth(value: Value, path: Path) -> bool | None:
    """Whether a value is true on a path; None if that is unknown."""
    match value:
        case Constant(value=constant):
            return bool(constant)
        case FunctionValue() | ClassValue() | ModuleValue() | Symbol():
            return True
        case Union(options=options):
            known = {truth(option.value, path) for option in options if not exclude(option.guard, path)}
            if len(known) == 1 and None not in known:
                return known.pop()
    if isinstance(value, Thing) and (value.kind in _TRUE_KINDS or (value.cls and not value.kind)):
        return True
    if isinstance(value, Thing) and isinstance(length := value.fields.get("[]"), Constant):
        if "[~]" in value.fields:
            return None
        return bool(length.value) or (None if "[*]" in value.fields else False)
    if isinstance(value, Thing) and value.operation is not None:
        operator, operands = value.operation
        if operator == "not":
            inner = truth(operands[0], path)
            return None if inner is None else not inner
        if operator in ("and", "or"):
            parts = [truth(operand, path) for operand in operands]
            decisive = operator == "or"
            if decisive in parts:
                return decisive
            if None not in parts:
                return not decisive
    if path:
        known_atoms = set(path)
        for holds in (True, False):
            needed = atoms(value, holds)
            if needed and all(atom in known_atoms for atom in needed):
                return holds
        positive = atoms(value, True)
        if positive and exclude(positive, path):
            return False
        negative = atoms(value, False)
        if len(negative) == 1 and exclude(negative, path):
            return True
    return None


def refined(value: Value, path: Path) -> Value:
    """A value without the alternatives that the tests of a path exclude."""
    if not path or not isinstance(value, Union):
        return value
    kept = [option for option in value.options if not _contradicted(value, option, path)]
    if not kept or len(kept) == len(value.options):
        return value
    return join(kept)


def _contradicted(union: Union, option: Option, path: Path) -> bool:
    if exclude(option.guard, path):
        return True
    for atom in path:
        if atom.subject is not union:
            continue
        if atom.test == "truth" and truth(option.value, ()) is (not atom.holds):
            return True
        if atom.test in ("==", "is") and isinstance(atom.other, Constant):
            same = isinstance(option.value, Constant) and option.value.value == atom.other.value
            known = isinstance(option.value, Constant) or truth(option.value, ()) is True
            if known and same is not atom.holds:
                return True
    return False
