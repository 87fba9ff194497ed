"""Global settings of torch that a program changes: TF32, cuDNN, determinism, the default dtype."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tclint.source.questions.defaults import Defaults
from tclint.source.run.conditions import exclude
from tclint.source.run.facts import Facts
from tclint.source.run.values import FALSE, NONE, TRUE, Event, Symbol, Value, constant_of

MATMUL = "torch.backends.cuda.matmul"
CUDNN = "torch.backends.cudnn"
SETTER = "torch.set_float32_matmul_precision"
DETERMINISTIC = (f"{CUDNN}.deterministic", "torch.use_deterministic_algorithms", "torch.set_deterministic")
"""The names of the settings that ask for reproducible results."""
_SETTINGS = frozenset({"set", "switch", "debug"})
_OPERATORS = {
    SETTER: ("matmul",),
    f"{MATMUL}.allow_tf32": ("matmul",),
    f"{CUDNN}.allow_tf32": ("conv", "rnn"),
    f"{MATMUL}.fp32_precision": ("matmul",),
    f"{CUDNN}.fp32_precision": ("conv", "rnn"),
    f"{CUDNN}.conv.fp32_precision": ("conv",),
    f"{CUDNN}.rnn.fp32_precision": ("rnn",),
    "torch.backends.fp32_precision": ("matmul", "conv", "rnn"),
}


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting that a program changes."""

    name: str
    """'torch.backends.cudnn.benchmark', 'torch.set_float32_matmul_precision', ..."""
    value: Value
    event: Event

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators whose precision it chooses: 'matmul', 'conv', 'rnn'."""
        return _OPERATORS.get(self.name, ())

    @property
    def precision(self) -> str:
        """The precision in which its operators then compute float32: 'tf32' or 'ieee'; '' if unknown."""
        value = constant_of(self.value)
        if self.name == SETTER:
            return {"highest": "ieee", "high": "tf32", "medium": "tf32"}.get(str(value), "")
        if isinstance(value, bool):
            return "tf32" if value else "ieee"
        return str(value) if value in ("tf32", "ieee") else ""


class Switches:
    """Answers about one program."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.all = [
            Switch(event.name, event.first or NONE, event)
            for event in facts.record.of("set", "switch")
            if event.kind == "switch" or event.name.startswith("torch.backends.")
        ]
        """All changes of settings, in order."""

    def of(self, *names: str) -> list[Switch]:
        return [switch for switch in self.all if switch.name in names]

    def is_set_elsewhere(self, switch: Switch) -> bool:
        """Whether the program also sets the same setting elsewhere, which means that it manages it."""
        return any(other.event.place != switch.event.place for other in self.of(switch.name))

    @cached_property
    def asks_for_exactness(self) -> bool:
        """Whether the program asks for deterministic operations, or computes in float64."""
        return any(switch.value == TRUE for switch in self.of(*DETERMINISTIC)) or any(
            event.first == Symbol("torch.float64") for event in self.facts.record.of("default_dtype")
        )

    def only(self, name: str, value: Value) -> Switch | None:
        """The place that always sets a setting to a value, if the program sets it nowhere else."""
        found = self.of(name)
        if any(switch.value != value or self.is_set_elsewhere(switch) for switch in found):
            return None
        return next((switch for switch in found if self.is_always(switch.event)), None)

    def is_always(self, event: Event) -> bool:
        """Whether an event happens whatever the tests give, except tests for a GPU and those without which
        the program fails, and lasts for the rest of the program."""
        defaults = Defaults()
        decided = tuple(atom for atom in event.path if atom not in self.facts.record.required)
        holds = defaults.follows(decided) is True and not defaults.named
        return holds and not event.regions and not self._is_helper(event)

    def _is_helper(self, event: Event) -> bool:
        """Whether an uncalled function does nothing but change settings, so that its unknown callers
        decide."""
        others = (other for other in self.facts.record.events if other.run == event.run)
        constructs = event.places[0].function.name == "__init__"
        return event.run > 0 and not constructs and all(other.kind in _SETTINGS for other in others)

    @cached_property
    def environment(self) -> dict[str, list[Event]]:
        """Name of an item such as `os.environ['X']` -> the events that set it."""
        found: dict[str, list[Event]] = {}
        for event in self.facts.record.of("set"):
            if event.name.startswith("os.environ["):
                found.setdefault(event.name, []).append(event)
        return found

    def may_be(self, value: Value, *names: str) -> bool:
        """Whether any of these settings may be set to a value, which is True or False."""
        opposite = FALSE if value == TRUE else TRUE
        return any(switch.value != opposite for switch in self.of(*names))

    def seeds(self, switch: Switch) -> bool:
        """Whether the function with the switch also seeds random numbers."""
        return any(
            seed.stack == switch.event.stack and seed.place.function is switch.event.place.function
            for seed in self.facts.record.of("seed")
        )

    def together(self, one: Switch, other: Switch) -> bool:
        """Whether a run that makes one change also makes the other and keeps both; options count with their
        defaults."""
        first, second = one.event, other.event
        if first.run != second.run and not any(map(_is_at_import, (first, second))):
            return False  # no known caller makes both changes
        holds = Defaults().holds
        paths = tuple({atom for atom in event.path if holds(atom) is not True} for event in (first, second))
        if exclude(first.path, second.path) or not (paths[0] <= paths[1] or paths[1] <= paths[0]):
            return False
        return not any(
            later.name == switch.name
            and later.value != switch.value
            and later.event.index > switch.event.index
            and later.event.run in (first.run, second.run)
            and set(later.event.path) <= paths[0] | paths[1]
            for switch in (one, other)
            for later in self.all
        )


def _is_at_import(event: Event) -> bool:
    """Whether whoever uses the file does it, since it happens in no function."""
    return event.run == 0 and all(place.function.kind == "module" for place in event.places)
