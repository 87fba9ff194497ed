"""Run-time settings of torch that a program sets: TF32, cuDNN, determinism, the default dtype."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tclint.source.run.facts import Facts
from tclint.source.run.values import NONE, TRUE, Event, Symbol, Value, constant_of

MATMUL = "torch.backends.cuda.matmul"
CUDNN = "torch.backends.cudnn"
SETTER = "torch.set_float32_matmul_precision"
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
    def always(self) -> bool:
        """Whether it is set whatever comes out of tests, and for all that follows."""
        return not self.event.path and not self.event.regions

    @property
    def operators(self) -> tuple[str, ...]:
        """What it chooses the precision of: 'matmul', 'conv', 'rnn'."""
        return _OPERATORS.get(self.name, ())

    @property
    def precision(self) -> str:
        """'tf32' or 'ieee' for what its operators compute float32 in; '' where that is not known."""
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
            Switch(event.name, event.arguments.get("value", NONE), event)
            for event in facts.record.of("set", "switch")
            if event.kind == "switch" or event.name.startswith("torch.backends.")
        ]
        """Every setting, in order."""

    def of(self, *names: str) -> list[Switch]:
        return [switch for switch in self.all if switch.name in names]

    def is_set_elsewhere(self, switch: Switch) -> bool:
        """Whether the program sets the same at another place: somebody manages it."""
        return any(other.event.place != switch.event.place for other in self.of(switch.name))

    @cached_property
    def asks_for_exactness(self) -> bool:
        """Whether the program asks for deterministic operations, or computes in float64."""
        deterministic = ("deterministic", "use_deterministic_algorithms", "set_deterministic")
        return any(switch.last in deterministic and switch.value == TRUE for switch in self.all) or any(
            event.first == Symbol("torch.float64") for event in self.facts.record.of("default_dtype")
        )
