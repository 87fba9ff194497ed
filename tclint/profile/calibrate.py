"""Factors between measured and predicted times, fitted on half of the shapes and judged on the other half."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tclint.core.files import write_atomically
from tclint.core.units import plural
from tclint.core.version import __version__
from tclint.cost.gpu import Factor, Gpu
from tclint.cost.gpu.factors import factors_text, read_factors
from tclint.cost.kernels.pricing import calibration_key
from tclint.profile.beside import Beside
from tclint.profile.predicted import priced_operators
from tclint.profile.profile import RankProfile

LEAST_US = 8.0
"""Shorter times are within the resolution of older traces, a microsecond, and are mostly starting."""
LEAST_SHAPES = 6
"""Half of them are fitted: a factor of one or two shapes is theirs, not the GPU's."""
_ONE_KIND = 0.9
"""Share of an op's predicted time in one kind, from which on its measured time tells of that kind."""

Key = tuple[str, str]
"""Kind and precision."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Work of one shape, measured and predicted, in microseconds."""

    key: Key
    shape: Hashable
    measured_us: float
    predicted_us: float
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """What the fit of one kind in one precision came to."""

    key: Key
    shapes: int
    factor: Factor | None
    """None where it was refused."""
    why: str = ""
    """The reason of a refusal."""

    @property
    def text(self) -> str:
        if self.factor is not None:
            return f"{self.factor.text}, {self.shapes} shapes"
        return f"{' '.join(self.key)}: refused: {self.why}"


def samples_of_traces(profiles: Iterable[RankProfile], gpu: Gpu) -> Iterator[Sample]:
    """The operators of traces whose recorded sizes tell what they computed."""
    for profile in profiles:
        for row in priced_operators(profile.trace, gpu):
            key = calibration_key(row.work, gpu, row.precision)
            if key is not None:
                yield Sample(key, row.work, row.time_us, row.price.time_us, row.calls)


def samples_of_model(besides: Iterable[Beside]) -> Iterator[Sample]:
    """Matched ops of the model, forward and backward apart, where nearly all they run is of one kind."""
    for beside in besides:
        estimate = beside.estimate
        for index, time in beside.alignment.measured.items():
            rows = estimate.rows_of(index)
            for phase, measured_us in (("forward", time.forward_us), ("backward", time.backward_us)):
                own = [row for row in rows if row.phase == phase]
                predicted_us = sum(row.time_us for row in own)
                by_kind: dict[Key | None, float] = defaultdict(float)
                for row in own:
                    key = calibration_key(row.work, estimate.gpu, estimate.scenario.precision)
                    by_kind[key] += row.time_us
                most = max(by_kind, key=lambda key: by_kind[key], default=None)
                if most is not None and by_kind[most] >= _ONE_KIND * predicted_us:
                    shape = (phase, *(row.work for row in own))
                    yield Sample(most, shape, measured_us, predicted_us, beside.alignment.steps)


def fit(samples: Iterable[Sample], gpu: Gpu, fitted_on: str) -> list[Fitted]:
    """One factor per kind and precision, by kind; refused where it does not help shapes that it did not see.

    Args:
        fitted_on: what the trace is of, for the file.
    """
    by_key: dict[Key, dict[Hashable, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        by_key[sample.key][sample.shape].append(sample)
    fitted = (_fit(key, shapes, gpu, fitted_on) for key, shapes in sorted(by_key.items()))
    return [one for one in fitted if one.shapes]


def _fit(key: Key, shapes: dict[Hashable, list[Sample]], gpu: Gpu, fitted_on: str) -> Fitted:
    ratios = {}
    for shape, samples in shapes.items():
        calls = sum(sample.calls for sample in samples)
        measured_us = sum(sample.measured_us * sample.calls for sample in samples) / calls
        if measured_us >= LEAST_US and samples[0].predicted_us:
            ratios[shape] = measured_us / samples[0].predicted_us
    count = len(ratios)
    if count < LEAST_SHAPES:
        few = f"{plural(count, 'shape')} of {LEAST_US:g} us or more, and {LEAST_SHAPES} are needed"
        return Fitted(key, count, None, few)
    # By a hash, so that neighbouring sizes fall into both halves and every run makes the same ones.
    ordered = [ratios[shape] for shape in sorted(ratios, key=_digest)]
    seen, unseen = ordered[::2], ordered[1::2]
    factor = _least_error(seen)
    before, after = error_percent(unseen, 1.0), error_percent(unseen, factor)
    if after >= before:
        why = (
            f"x{factor:.2f}, fitted on half of {count} shapes, does not lower the error on the others "
            f"({before:.0f} -> {after:.0f} %)"
        )
        return Fitted(key, count, None, why)
    return Fitted(key, count, Factor(gpu.id, *key, factor, count, before, after, fitted_on))


def _digest(shape: Hashable) -> str:
    return hashlib.sha256(repr(shape).encode()).hexdigest()


def _least_error(ratios: Sequence[float]) -> float:
    """The factor with the least mean error on measured over predicted times: |f p / m - 1| is least at the
    median of m / p, each weighted by p / m."""
    ordered = sorted(ratios)
    half = sum(1 / ratio for ratio in ordered) / 2
    passed = 0.0
    for ratio in ordered:
        passed += 1 / ratio
        if passed >= half:
            break
    return ratio


def error_percent(ratios: Sequence[float], factor: float) -> float:
    """Mean absolute error of predictions times a factor, from measured over predicted times."""
    return 100.0 * sum(abs(factor / ratio - 1.0) for ratio in ratios) / len(ratios)


def write_factors(path: str, fitted: Sequence[Fitted], gpu: Gpu) -> bool:
    """Write the factors; those that the file has of other GPUs, kinds and precisions stay.

    Returns:
        Whether there was any; else the file stays as it is.

    Raises:
        UsageError: the file is there and holds something else, or cannot be written.
    """
    found = [one.factor for one in fitted if one.factor is not None]
    if not found:
        return False
    judged = {(gpu.id, *one.key) for one in fitted}
    others = [one for one in kept_factors(path) if (one.gpu, one.kind, one.precision) not in judged]
    write_atomically(path, factors_text([*others, *found]))
    return True


def kept_factors(path: str) -> tuple[Factor, ...]:
    """What a file to be written has already; nothing of another version's, whose predictions were others.

    Raises:
        UsageError: the file is there and holds something else.
    """
    if not os.path.exists(path) or not os.path.getsize(path):
        return ()
    version, factors = read_factors(path)
    return factors if version == __version__ else ()
