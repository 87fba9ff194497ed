"""Judges inferred inputs against true ones: ranks of the arguments, and FLOPs per sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inputs_rows import Row, batch_dim, stated_tensors

FLOPS_FACTOR = 2.0
"""FLOPs per sample may be this many times too many, or too few."""

Shapes = Mapping[str, tuple[int, ...]]
"""By name of the input, as graphs have it: 'x', 'images[0]', 'cond['text']'."""


@dataclass(frozen=True)
class Traced:
    """What a trace says of its inputs."""

    shapes: Shapes
    flops: float


@dataclass(frozen=True)
class Verdict:
    """Whether inferred inputs are like the true ones; both False where nothing was traced."""

    rank_ok: bool = False
    flops_ratio: float | None = None
    """Inferred FLOPs per sample over true ones; None where either is unknown."""

    @property
    def flops_ok(self) -> bool:
        return self.flops_ratio is not None and 1 / FLOPS_FACTOR <= self.flops_ratio <= FLOPS_FACTOR


def judge(row: Row, true: Traced | None, inferred: Traced | None) -> Verdict:
    """Compare what was inferred with the truth.

    Every tensor that the truth gives has to be there with its rank; lists may be of another length, and
    tensors that the truth does not give are not looked at. FLOPs are compared per sample: those of each run
    are divided by the size that its own batch dim has (`Row.batch`: the first dim of the first input, unless
    the row says otherwise), so that a batch of 8 instead of 128 is no error, but 128 tokens instead of 1,024
    are. Where nothing counts samples, as with graphs, they are compared as they are.

    Args:
        true: the trace on the true inputs; None where it failed: only ranks are judged.
        inferred: the trace on inferred ones; None where there are none.
    """
    if inferred is None:
        return Verdict()
    return Verdict(_right_ranks(row, true, inferred), _flops_ratio(row, true, inferred))


def _right_ranks(row: Row, true: Traced | None, inferred: Traced) -> bool:
    found = _ranks(inferred.shapes.items())
    wanted = _ranks(true.shapes.items() if true is not None else _stated_shapes(row))
    return all(
        name in found and (name in row.any_rank or found[name] == ranks) for name, ranks in wanted.items()
    )


def _stated_shapes(row: Row) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, spec.shape) for name, spec in stated_tensors(row.inputs) if spec is not None]


def _ranks(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, set[int]]:
    ranks: dict[str, set[int]] = {}
    for name, shape in shapes:
        ranks.setdefault(_without_indices(name), set()).add(len(shape))
    return ranks


def _without_indices(name: str) -> str:
    return re.sub(r"\[\d+\]", "", name)


def _flops_ratio(row: Row, true: Traced | None, inferred: Traced) -> float | None:
    per_sample = []
    for traced in (inferred, true):
        samples = None if traced is None else _samples(row, traced.shapes)
        if traced is None or not samples or not traced.flops:
            return None
        per_sample.append(traced.flops / samples)
    return per_sample[0] / per_sample[1]


def _samples(row: Row, shapes: Shapes) -> int | None:
    """The size of the batch; None where its tensor is missing or has too few dims."""
    counted = batch_dim(row)
    if counted is None:
        return 1
    name, dim = counted
    # Inputs that are only positional have names of the tracer's own.
    shape = next(iter(shapes.values()), ()) if row.positional else shapes.get(name, ())
    return shape[dim] if dim < len(shape) else None
