"""Lists of torch's operators: which behave alike in lowering, and which autocast runs in which dtype."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from tclint.core.toml import packaged_toml

Policy = Literal["lower_precision", "fp32", "fp32_result", "promote", "banned", "none"]


@dataclass(frozen=True)
class AutocastLists:
    """torch's operator lists, from autocast.toml."""

    policies: dict[str, Policy]
    """By ATen base name; an op that is missing takes its inputs as they come."""
    first_input: frozenset[str]
    """Ops whose result follows their first input's dtype."""

    def policy(self, op_name: str) -> Policy:
        return self.policies.get(op_name, "none")


@cache
def autocast_lists() -> AutocastLists:
    """Read the lists, once."""
    data = packaged_toml("tclint.graph.ops", "autocast.toml")
    policies: dict[str, Policy] = {}
    names: tuple[Policy, ...] = ("lower_precision", "fp32", "fp32_result", "promote", "banned")
    for policy in names:
        for name in (*data.get(policy, ()), *data["composite"].get(policy, ())):
            policies[name] = policy
    return AutocastLists(policies, frozenset(data["first_input"]["names"]))


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

SUMS = frozenset({"add", "sub", "subtract", "rsub"})
PRODUCTS = frozenset({"mul", "multiply"})
QUOTIENTS = frozenset({"div", "divide", "true_divide"})
"""Elementwise arithmetic of two tensors, or of one and a number."""
