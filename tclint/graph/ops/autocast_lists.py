"""torch.autocast's operator lists: which operators it runs in which dtype. The tracer applies them inside a
model's own regions, the cost model to a whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

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
