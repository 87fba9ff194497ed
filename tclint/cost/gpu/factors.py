"""Factors that `tclint profile --calibrate` fitted to a trace of the user's GPU, and the file of them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.units import percent_text
from tclint.core.version import __version__


@dataclass(frozen=True, slots=True)
class Factor:
    """Measured over predicted time of one kind of kernel, on one GPU, in one precision."""

    gpu: str
    """Its id."""
    kind: str
    """'gemm', 'conv', 'attention', or the class of memory-bound kernels: 'elementwise', 'norm', ..."""
    precision: str
    """'half' (fp16 and bf16), 'tf32', 'fp32'; of memory-bound kernels that of their data, else its dtype."""
    factor: float
    """What predicted times are multiplied by."""
    shapes: int
    """Measured: one half fitted, the other held out."""
    error_before_percent: float
    """Mean error on the shapes that the fit did not see, without the factor."""
    error_percent: float
    """With it."""
    fitted_on: str
    """GPU, as CUDA names it, and the trace's file."""

    @property
    def text(self) -> str:
        """'gemm half x1.08 (held-out error 9 -> 5 %)'."""
        errors = f"{self.error_before_percent:.0f} -> {percent_text(self.error_percent)}"
        return f"{self.kind} {self.precision} x{self.factor:.2f} (held-out error {errors})"


def load_factors(path: str) -> tuple[Factor, ...]:
    """The factors of a file, in its order.

    Raises:
        UsageError: it cannot be read, holds no factors, or those of another version of tclint.
    """
    version, factors = read_factors(path)
    if version != __version__:
        raise UsageError(
            f"The calibration {path!r} corrects the predictions of tclint {version}, and this is "
            f"{__version__}: write it again with 'tclint profile TRACE --calibrate FILE'."
        )
    return factors


def read_factors(path: str) -> tuple[str, tuple[Factor, ...]]:
    """The version of tclint that wrote a file, and its factors.

    Raises:
        UsageError: it cannot be read, or holds no factors.
    """
    try:
        return _read(path, os.stat(path).st_mtime_ns)
    except OSError as error:
        raise UsageError(f"Cannot read the calibration {path!r}: {error.strerror or error}.") from None


@lru_cache(maxsize=16)
def _read(path: str, _changed_ns: int) -> tuple[str, tuple[Factor, ...]]:
    with open(path, encoding="utf-8") as file:
        try:
            document = json.load(file)
            return str(document["tclint"]), tuple(map(_factor, document["factors"]))
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{path!r} holds no calibration; 'tclint profile TRACE --calibrate FILE' writes one."
            ) from None


def _factor(entry: Mapping[str, Any]) -> Factor:
    found = Factor(**entry)
    for item in fields(Factor):
        value = getattr(found, item.name)
        if item.type == "str" and not isinstance(value, str):
            raise TypeError(item.name)
        # A comparison that fails for NaN, and raises TypeError for texts.
        if item.type != "str" and not 0 <= value < math.inf:
            raise ValueError(item.name)
    if not found.factor:
        raise ValueError("factor")
    return found


def factors_note(factors: Sequence[Factor], path: str) -> str:
    """What a report says of one GPU's factors."""
    listed = "; ".join(factor.text for factor in factors)
    return f"times on {factors[0].gpu} are multiplied by the factors of {os.path.basename(path)}: {listed}"


def factors_text(factors: Iterable[Factor]) -> str:
    """The content of a file of factors, sorted."""
    ordered = sorted(factors, key=lambda factor: (factor.gpu, factor.kind, factor.precision))
    return json.dumps({"tclint": __version__, "factors": list(map(asdict, ordered))}, indent=2) + "\n"
