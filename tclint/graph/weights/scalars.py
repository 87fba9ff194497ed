"""Numbers in a model's code that follow from its sizes: 1/sqrt(head_dim) and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

_FORMULAS: dict[str, Callable[[int], float]] = {
    "{n}": lambda n: n,
    "1/{n}": lambda n: 1 / n,
    "sqrt({n})": math.sqrt,
    "1/sqrt({n})": lambda n: 1 / math.sqrt(n),
    "{n}**0.25": lambda n: n**0.25,
    "{n}**-0.25": lambda n: n**-0.25,
    "{n}**2": lambda n: n * n,
    "1/{n}**2": lambda n: 1 / (n * n),
    "{n}-1": lambda n: n - 1,
    "1/({n}-1)": lambda n: 1 / (n - 1) if n > 1 else math.nan,
    "{n}/2": lambda n: n / 2,
    "2/{n}": lambda n: 2 / n,
    "log({n})": math.log,
    "1/log({n})": lambda n: 1 / math.log(n) if n > 1 else math.nan,
    "sqrt(log({n}))": lambda n: math.sqrt(math.log(n)),
    "log2({n})": math.log2,
}

_TOLERANCE = 1e-6
"""Numbers go through float32."""


def formulas(number: float, size: int) -> Iterator[str]:
    """How a number may follow from a size. 0, 1 and -1 follow from none."""
    value = abs(number)
    if value in (0, 1) or not math.isfinite(value):
        return
    for text, formula in _FORMULAS.items():
        wanted = formula(size)
        if wanted and math.isclose(value, wanted, rel_tol=_TOLERANCE):
            yield text.format(n=size)
