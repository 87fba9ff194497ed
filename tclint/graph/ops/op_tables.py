"""The lists of op_tables.toml: which operators behave alike in lowering."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Derivative(NamedTuple):
    """What an elementwise backward reads beside the output's gradient."""

    saved: str
    """'input' or 'output': the tensor it reads; 'none': the gradient alone is scaled; 'free': the gradient
    passes through untouched."""
    extra_passes: int = 0
    """Further kernels, each reading and writing one tensor, because the derivative is a formula of several
    ops and not one kernel."""


_TABLES: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "op_tables.toml").read_text(encoding="utf-8")
)


def names(table: str) -> frozenset[str]:
    """One list of the table [memory]: 'free', 'creators', 'gathers', ..."""
    return frozenset(_TABLES["memory"][table])


NOT_DIFFERENTIABLE: frozenset[str] = frozenset(_TABLES["gradient"]["none"])

DERIVATIVES: dict[str, Derivative] = {
    name: Derivative(entry["saved"], entry["extra_passes"])
    for entry in _TABLES["derivative"]
    for name in entry["names"]
}
