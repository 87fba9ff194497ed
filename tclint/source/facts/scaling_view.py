"""What a function does with scalers, gradients and optimizers, in order, and questions about that order."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal as Choices
from typing import NamedTuple, overload

from tclint.source.facts.amp import Amp
from tclint.source.names.queries import (
    Condition,
    conditions_of,
    exclusive,
    guards_before,
    left_between,
    mutually_exclusive,
)
from tclint.source.syntax.tables import (
    Call,
    Expression,
    Function,
    Other,
    Subscript,
    dotted,
    parts_of,
)

_PRECISION = re.compile(
    r"(?<![a-z])amp(?![a-z])|useamp|scal|fp16|float16|half|mixed|precision|bf16|autocast|cuda|gpu|device|apex"
)

Kind = Choices[
    "scaled_backward",
    "backward",
    "other_backward",
    "unscale",
    "clip",
    "cut",
    "rescale",
    "read",
    "scaler_step",
    "step",
    "update",
    "escape",
]
"""'other_backward' belongs to a framework or may be scaled by hand; 'cut' changes `.grad` by its size
or by an amount of its own; 'rescale' multiplies it; 'read' looks at its size; 'escape' hands a scaler to
code that is not seen."""


class Place(NamedTuple):
    """A call in a function."""

    function: int
    block: int
    node_id: int


class Op(NamedTuple):
    """One thing done."""

    kind: Kind
    scaler: str
    """As the viewed function names it; '' where there is none."""
    optimizer: str
    call: Call
    places: tuple[Place, ...]
    """The call in the viewed function, and within the functions that it calls, innermost last."""
    loss: Expression | None = None

    @property
    def node_id(self) -> int:
        return self.places[-1].node_id


@dataclass
class View:
    """What a function does, with what the functions of its file do that it calls."""

    amp: Amp
    function: Function
    ops: list[Op] = field(default_factory=list)
    _conditions: dict[tuple[Place, ...], tuple[Condition, ...]] = field(default_factory=dict, repr=False)
    _single: dict[tuple[int, int], bool] = field(default_factory=dict, repr=False)
    _loops: dict[tuple[Place, ...], list[tuple[tuple[int, ...], int, int]]] = field(
        default_factory=dict, repr=False
    )
    _by_tails: dict[tuple[Kind, ...], dict[str, list[Op]]] = field(default_factory=dict, repr=False)
    _counted: int = field(default=-1, repr=False)
    _positions: dict[tuple[Place, ...], int] = field(default_factory=dict, repr=False)
    _by_kinds: dict[tuple[Kind, ...], tuple[list[int], list[Op]]] = field(default_factory=dict, repr=False)

    def of(self, *kinds: Kind) -> Sequence[Op]:
        """Ops of these kinds, in order."""
        return self._of(kinds)[1]

    def alike(self, scaler: str, *kinds: Kind) -> list[Op]:
        """Ops of these kinds whose scaler has a name that ends as this one: they may be one object."""
        if self._counted != len(self.ops) or kinds not in self._by_tails:
            found = self._by_tails[kinds] = {}
            for op in self.of(*kinds):
                found.setdefault(tail(op.scaler), []).append(op)
        return self._by_tails[kinds].get(tail(scaler), [])

    def _of(self, kinds: tuple[Kind, ...]) -> tuple[list[int], list[Op]]:
        """Positions of the ops of these kinds, and the ops; found once all ops are there."""
        if self._counted != len(self.ops):
            self._counted = len(self.ops)
            self._by_kinds.clear()
            self._positions.clear()
            for index, op in enumerate(self.ops):
                self._positions.setdefault(op.places, index)
        if kinds not in self._by_kinds:
            found = [(index, op) for index, op in enumerate(self.ops) if op.kind in kinds]
            self._by_kinds[kinds] = [index for index, _ in found], [op for _, op in found]
        return self._by_kinds[kinds]

    def before(self, op: Op, *kinds: Kind) -> Sequence[Op]:
        """Ops that one run can do earlier than this one, the latest first."""
        positions, ops = self._of(kinds)
        end = bisect.bisect_left(positions, self._positions[op.places])
        earlier = (ops[index] for index in range(end - 1, -1, -1))
        return _Found(other for other in earlier if not self.mutually_exclusive(other, op))

    def after(self, op: Op, *kinds: Kind) -> Sequence[Op]:
        """Ops that one run can do later than this one, the next first."""
        positions, ops = self._of(kinds)
        start = bisect.bisect_right(positions, self._positions[op.places])
        later = (ops[index] for index in range(start, len(ops)))
        return _Found(other for other in later if not self.mutually_exclusive(op, other))

    def mutually_exclusive(self, first: Op, second: Op) -> bool:
        """Whether one run of a loop's round never does both; `first` comes first in the text."""
        for one, other in zip(first.places, second.places, strict=False):
            if one.node_id == other.node_id:
                continue
            function = self.amp.tables.functions[one.function]
            question = ("apart", one.block, other.block)
            if question not in function.known:
                function.known[question] = mutually_exclusive(
                    function, one.block, other.block
                ) or left_between(function, one.block, other.block)
            if function.known[question]:
                return True
            break
        return exclusive(self.conditions(first), self.conditions(second))

    def conditions(self, op: Op) -> tuple[Condition, ...]:
        """Tests that hold where it is done, those of `if test: continue` before it as well."""
        known = self._conditions.get(op.places)
        if known is None:
            functions = self.amp.tables.functions
            known = self._conditions[op.places] = tuple(
                condition
                for place in op.places
                for condition in (
                    *conditions_of(functions[place.function], place.block),
                    *guards_before(functions[place.function], place.block, place.node_id),
                )
            )
        return known

    def around(self, op: Op) -> list[tuple[tuple[int, ...], int, int]]:
        """(calls followed, function, block) of every block around it, innermost first."""
        found: list[tuple[tuple[int, ...], int, int]] = []
        for level in range(len(op.places) - 1, -1, -1):
            place = op.places[level]
            frame = tuple(outer.node_id for outer in op.places[:level])
            function = self.amp.tables.functions[place.function]
            found.extend((frame, place.function, block) for block in function.enclosing(place.block))
        return found

    def loops(self, op: Op) -> list[tuple[tuple[int, ...], int, int]]:
        """The loops around it, innermost first; not one within another that may run a single round."""
        known = self._loops.get(op.places)
        if known is None:
            known = self._loops[op.places] = self._loops_around(op)
        return known

    def _loops_around(self, op: Op) -> list[tuple[tuple[int, ...], int, int]]:
        found = [
            (frame, function, block)
            for frame, function, block in self.around(op)
            if self.amp.tables.functions[function].blocks[block].kind == "loop"
        ]
        return [loop for loop in found[:-1] if not self._single_round(loop)] + found[-1:]

    def _single_round(self, loop: tuple[tuple[int, ...], int, int]) -> bool:
        """`for _ in range(d_steps)` where d_steps is 1, or is 1 unless an option says otherwise."""
        known = self._single.get(loop[1:])
        if known is None:
            known = self._single[loop[1:]] = self._counts_to_one(*loop[1:])
        return known

    def _counts_to_one(self, index: int, block: int) -> bool:
        function = self.amp.tables.functions[index]
        for event in function.assignments:
            if event.block != block:
                continue
            header = isinstance(event.value, Other) and event.value.kind == "iterate"
            for iterated in parts_of(event.value) if header else ():
                if isinstance(iterated, Call) and dotted(iterated.function) == "range":
                    count = iterated.arguments[0].value if len(iterated.arguments) == 1 else None
                    return count is not None and 1 in self.amp.resolver.evaluate(function, count).values
        return False

    def bound_by(self, loop: tuple[tuple[int, ...], int, int], name: str) -> bool:
        """Whether a loop iterates over what a name stands for: `for opt in optimizers`, or
        `for group in groups: opt = optimizers[group]`."""
        function = self.amp.tables.functions[loop[1]]
        root = name.partition(".")[0].partition("[")[0]
        bound: set[str] = set()
        for event in function.assignments:
            if event.block == loop[2] and isinstance(event.value, Other) and event.value.kind == "iterate":
                bound.update(target.partition(".")[0] for target in event.targets)
            elif loop[2] in function.enclosing(event.block) and _picked_by(event.value, bound):
                bound.update(event.targets)
        return root in bound or any(f"[{target}]" in name for target in bound)

    def changes_in(self, loop: tuple[tuple[int, ...], int, int]) -> set[str]:
        """Names that a loop's header or body assigns."""
        return self.amp.tables.functions[loop[1]].assigned_in(loop[2])

    def encloses(self, first: Op, second: Op) -> bool:
        """Whether the first is always done in a run of the second's block: `second` is at least as deep."""
        functions = self.amp.tables.functions
        chain = self.around(first)
        transparent = ("with", "try", "finally")
        position = 0
        while position < len(chain) - 1:
            _, function, block = chain[position]
            kind = functions[function].blocks[block].kind
            # A followed function's body runs where it is called.
            if kind not in transparent and not (block == 0 and len(chain) - 1 > position):
                break
            position += 1
        return chain[position] in self.around(second)

    def extra(self, op: Op, other: Op) -> list[Condition]:
        """Tests that hold where the first is done and need not hold where the other is."""
        shared = self.conditions(other)
        return [condition for condition in self.conditions(op) if condition not in shared]

    def decided_by_precision(self, op: Op, other: Op) -> bool:
        """The first is done under a test on mixed precision or the device that the other is not under."""
        return any(_PRECISION.search(condition.text.lower()) for condition in self.extra(op, other))

    def demand_opposites(self, one: Op, other: Op) -> bool:
        """One is done where a test holds, the other where the same test fails."""
        return exclusive(self.conditions(one), self.conditions(other))

    def between(self, first: Op, second: Op, *kinds: Kind) -> Sequence[Op]:
        """Ops of these kinds that one run can do between the two."""
        positions, ops = self._of(kinds)
        start = bisect.bisect_right(positions, self._positions[first.places])
        end = bisect.bisect_left(positions, self._positions[second.places])
        return _Found(
            op
            for op in (ops[index] for index in range(start, end))
            if not self.mutually_exclusive(first, op) and not self.mutually_exclusive(op, second)
        )


def tail(scaler: str) -> str:
    """`scaler` of `self.scaler`: two names in one file that end alike may be one object."""
    return scaler.rpartition(".")[2]


class _Found(Sequence[Op]):
    """Ops that are looked for as far as somebody asks: most questions are about the first."""

    def __init__(self, ops: Iterator[Op]) -> None:
        self._ops = ops
        self._known: list[Op] = []

    def __iter__(self) -> Iterator[Op]:
        at = 0
        while at < len(self._known) or self._look():
            yield self._known[at]
            at += 1

    def _look(self) -> bool:
        """Look for one more; whether there is."""
        found = next(self._ops, None)
        if found is not None:
            self._known.append(found)
        return found is not None

    def __bool__(self) -> bool:
        return bool(self._known) or self._look()

    def __len__(self) -> int:
        while self._look():
            pass
        return len(self._known)

    @overload
    def __getitem__(self, index: int) -> Op: ...
    @overload
    def __getitem__(self, index: slice) -> list[Op]: ...
    def __getitem__(self, index: int | slice) -> Op | list[Op]:
        last = index if isinstance(index, int) else index.stop
        while last is None or last < 0 or len(self._known) <= last:
            if not self._look():
                break
        return self._known[index]


def _picked_by(value: Expression, names: set[str]) -> bool:
    """`optimizers[group]`, `trainer.get_optimizer(group)`."""
    if isinstance(value, Subscript):
        return dotted(value.key) in names
    return isinstance(value, Call) and any(dotted(argument.value) in names for argument in value.arguments)
