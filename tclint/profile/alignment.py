"""Operators of a trace aligned with those of the traced model, by sequence, names and sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from tclint.graph.ops import Op
from tclint.profile.kernel_names import kernel_name
from tclint.profile.summary import COMMUNICATION
from tclint.profile.trace import Kernel, Operator, Trace
from tclint.profile.works import OPERATORS, product_sizes, tensor_shapes

_SAME: dict[str, str] = {name: group for group, names in OPERATORS["same"].items() for name in names}
"""Operators that stand for each other: versions of torch take different ones for the same work."""
_Key = tuple[str, tuple[object, ...]]
"""Name and sizes; no sizes where they were not recorded."""


@dataclass(slots=True)
class OpTime:
    """What one op of the model took, per step, in microseconds."""

    forward_us: float = 0.0
    backward_us: float = 0.0

    @property
    def time_us(self) -> float:
        return self.forward_us + self.backward_us


@dataclass(slots=True)
class Alignment:
    """Which op of the model took which time; times per step, communication and optimizer left out."""

    measured: dict[int, OpTime]
    """By op index."""
    steps: int
    calls: int
    """Operators of one step's forward pass that ran kernels, on average over steps."""
    matched_calls: int
    """How many of them match an op of the model."""
    matched_by_name: int
    """How many of them match by name and order only, since the trace does not tell their sizes."""
    ops: int
    """Ops of the model that the prediction gives kernels."""
    matched_ops: int
    matched_us: float
    time_us: float
    """Forward and backward kernels."""
    unmatched: dict[str, float] = field(default_factory=dict)
    """Time per step of operators of the trace that no op was found for, by name, the longest first."""

    @property
    def matched_percent(self) -> float:
        """The share of the time."""
        return 100.0 * self.matched_us / self.time_us if self.time_us else 0.0


@dataclass(eq=False, slots=True)
class _Call:
    """One operator as the program called it, with all that it ran."""

    operator: Operator
    forward: list[Kernel] = field(default_factory=list)
    backward: list[Kernel] = field(default_factory=list)

    @property
    def time_us(self) -> float:
        return sum(kernel.time_us for kernel in (*self.forward, *self.backward))


def align(trace: Trace, ops: Sequence[Op]) -> Alignment:
    """Align every step of a trace with the ops of a model.

    Args:
        ops: of the model, in order, those that run kernels.
    """
    steps = _steps(trace)
    keys = [_key_of_op(op) for op in ops]
    measured: dict[int, OpTime] = defaultdict(OpTime)
    found: set[int] = set()
    unmatched: dict[str, float] = defaultdict(float)
    calls = matched_calls = by_name = 0
    matched_us = time_us = 0.0
    known: dict[tuple[_Key, ...], tuple[dict[int, int], int]] = {}
    for step in steps:
        sequence = tuple(_key(call.operator) for call in step)
        if sequence not in known:
            known[sequence] = _pairs(sequence, keys)
        pairs, names_alone = known[sequence]
        calls += sum(bool(call.forward) for call in step)
        by_name += names_alone
        for position, call in enumerate(step):
            time_us += call.time_us
            if position not in pairs:
                unmatched[call.operator.name] += call.time_us
                continue
            matched_calls += bool(call.forward)
            matched_us += call.time_us
            index = ops[pairs[position]].index
            found.add(index)
            _add(measured[index], call, len(steps))
    count = max(len(steps), 1)
    return Alignment(
        dict(measured),
        len(steps),
        round(calls / count),
        round(matched_calls / count),
        round(by_name / count),
        len(ops),
        len(found),
        matched_us / count,
        time_us / count,
        {name: unmatched[name] / count for name in sorted(unmatched, key=lambda name: -unmatched[name])},
    )


def _add(measured: OpTime, call: _Call, steps: int) -> None:
    measured.forward_us += sum(kernel.time_us for kernel in call.forward) / steps
    measured.backward_us += sum(kernel.time_us for kernel in call.backward) / steps


def _steps(trace: Trace) -> list[list[_Call]]:
    """The calls of every step in order; a trace without steps is one. Calls whose kernels are partly missing
    do not occur: a step that the recorded window cuts is told by its kernels without launches."""
    by_step: dict[int | None, dict[int, _Call]] = defaultdict(dict)
    for kernel in trace.kernels:
        operator = kernel.operator
        if operator is None or operator.is_of_optimizer or kernel.activity != "kernel":
            continue
        if kernel_name(kernel.name).kind == COMMUNICATION:
            continue
        if trace.steps and kernel.step is None:
            continue
        is_backward = operator.is_backward
        outer = _outermost(operator.origin if is_backward else operator)
        call = by_step[kernel.step].setdefault(id(outer), _Call(outer))
        (call.backward if is_backward else call.forward).append(kernel)
    return [sorted(calls.values(), key=lambda call: call.operator.start_us) for calls in by_step.values()]


def _outermost(operator: Operator) -> Operator:
    """The operator as the program called it: the outermost of torch's own around it."""
    own = [one for one in operator.chain() if one.name.startswith("aten::")]
    return own[-1] if own else operator


def _key(operator: Operator) -> _Key:
    return _named(operator), _sizes(operator)


def _key_of_op(op: Op) -> _Key:
    dims = tuple(spec.shape for spec in op.inputs)
    dtypes = tuple("float" if spec.is_floating else "long" for spec in op.inputs)
    return _key(Operator(f"aten::{op.name}", 0.0, 0.0, dims=dims, dtypes=dtypes))


def _named(operator: Operator) -> str:
    name = operator.name.removeprefix("aten::").removesuffix("_")
    return _SAME.get(name, name)


def _sizes(operator: Operator) -> tuple[object, ...]:
    product = product_sizes(operator)
    if product is not None:
        # A product with one matrix for the whole batch may run as one, or as a batch.
        return product.batch * product.m, product.n, product.k
    shapes = tensor_shapes(operator)
    return shapes[0] if shapes else ()


def _pairs(calls: Sequence[_Key], ops: Sequence[_Key]) -> tuple[dict[int, int], int]:
    """Position of a call to position of its op, and how many pairs agree by name and order alone."""
    pairs = dict(_equal(calls, ops, range(len(calls)), range(len(ops))))
    names_alone = 0
    # A call of other sizes is another call; its name shows nothing.
    named = [key[0] if not key[1] else None for key in calls], [key[0] for key in ops]
    for calls_left, ops_left in list(_gaps(pairs, len(calls), len(ops))):
        for call, op in _equal(*named, calls_left, ops_left):
            pairs[call] = op
            names_alone += 1
    return pairs, names_alone


def _equal(
    calls: Sequence[Hashable], ops: Sequence[Hashable], calls_range: range, ops_range: range
) -> Iterator[tuple[int, int]]:
    first = [calls[position] for position in calls_range]
    second = [ops[position] for position in ops_range]
    for block in SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            yield calls_range[block.a + offset], ops_range[block.b + offset]


def _gaps(pairs: Mapping[int, int], calls: int, ops: int) -> Iterator[tuple[range, range]]:
    """What lies between neighbouring pairs on both sides."""
    call = op = 0
    ends: Iterable[tuple[int, int]] = (*sorted(pairs.items()), (calls, ops))
    for next_call, next_op in ends:
        if next_call > call and next_op > op:
            yield range(call, next_call), range(op, next_op)
        call, op = next_call + 1, next_op + 1
