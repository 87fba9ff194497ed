"""The lists of op_tables.toml: which operators behave alike in lowering."""

from __future__ import annotations

from typing import NamedTuple

from tclint.core.toml import packaged_toml


class Derivative(NamedTuple):
    """What an elementwise backward reads beside the output's gradient."""

    saved: str
    """'input' or 'output': the tensor it reads; 'none': the gradient alone is scaled; 'free': the gradient
    passes through untouched."""
    extra_passes: int = 0
    """Further kernels, each reading and writing one tensor, because the derivative is a formula of several
    ops and not one kernel."""


_TABLES = packaged_toml("tclint.graph.ops", "op_tables.toml")


def operators(table: str, name: str) -> frozenset[str]:
    """One list of the tables [memory], [products], [layout] and [dims]: operators('memory', 'free')."""
    return frozenset(_TABLES[table][name])


NOT_DIFFERENTIABLE: frozenset[str] = frozenset(_TABLES["gradient"]["none"])

DERIVATIVES: dict[str, Derivative] = {
    name: Derivative(entry["saved"], entry["extra_passes"])
    for entry in _TABLES["derivative"]
    for name in entry["names"]
}
