"""Arrays: which arrays of NumPy, and tensors made of them, are float64 because nobody chose another dtype."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.source.questions.data.constants import Constants
from tclint.source.questions.flow import KEEPS
from tclint.source.run.facts import Facts
from tclint.source.run.values import Constant, Event, Symbol, Thing, Value, options_of

_DEFAULTS = frozenset(
    {"zeros", "ones", "empty", "linspace", "eye", "identity", "rand", "randn", "normal", "uniform"}
)
"""Functions of NumPy, and of numpy.random, that make float64 numbers unless they are told otherwise."""
_KEEPS = frozenset(
    {"stack", "vstack", "hstack", "concatenate", "transpose", "expand_dims", "ascontiguousarray", "squeeze"}
    | {
        "array",
        "asarray",
        "copy",
        "reshape",
        "clip",
        "pad",
        "flip",
        "rot90",
        "moveaxis",
        "sqrt",
        "exp",
        "log",
    }
)
"""Functions of NumPy whose result is float64 if what they read is."""
_FROM_ARRAYS = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.tensor"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "**"})
_FLOAT = Symbol("builtins.float")


class Arrays:
    """Answers about one program."""

    def __init__(self, facts: Facts, constants: Constants) -> None:
        self.facts = facts
        self.constants = constants

    def float64_by(self, value: Value | None) -> Event | None:
        """The event by which a value is float64 although no dtype is written; None if it may be another."""
        found: Event | None = None
        for option, _ in options_of(value) if value is not None else ():
            found = self._of_thing(option, 24) if isinstance(option, Thing) else None
            if found is None:
                return None
        return found

    def _of_thing(self, thing: Thing, depth: int) -> Event | None:
        if depth == 0 or "@dtype" in thing.fields:
            return None
        for read in self._passed_on(thing):
            for item in self.facts.held(read):
                found = self._of_thing(item, depth - 1) if item is not thing else None
                if found is not None:
                    return found
        event = thing.made
        return event if event is not None and self._is_default(event) else None

    def _is_default(self, event: Event) -> bool:
        """Whether an event makes float64 numbers because it is not told which."""
        if event.name == ".astype":
            return event.first == _FLOAT
        last = event.name.rpartition(".")[2]
        is_of_numpy = event.name.startswith("numpy.") and last in _DEFAULTS
        return is_of_numpy and event.arguments.get("dtype", _FLOAT) == _FLOAT and len(event.arguments) < 4

    def _passed_on(self, thing: Thing) -> Iterator[Value]:
        """The values whose dtype a thing has if they are float64."""
        if "@collated" in thing.fields:
            yield thing.fields["@collated"]
        event = thing.made
        if event is None:
            operator, operands = thing.operation or ("", ())
            if operator == "[]":
                yield operands[0]
            elif operator in _ARITHMETIC:
                yield from (item for item in operands if not isinstance(item, Constant))
        elif "dtype" in event.arguments or event.name == ".astype":
            return
        elif event.name in _FROM_ARRAYS and event.first is not None:
            yield event.first
        elif event.name.startswith("numpy.") and event.name.rpartition(".")[2] in _KEEPS:
            yield from event.inputs
        elif event.name in ("torch.stack", "torch.cat") and event.first is not None:
            yield event.first
        elif event.subject is not None and (event.name in KEEPS or self.constants.is_array(event.subject)):
            yield event.subject
