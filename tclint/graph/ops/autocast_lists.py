"""torch.autocast's operator lists: which operators it runs in which dtype. The tracer applies them inside a
model's own regions, the cost model to a whole graph."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
    text = resources.files("tclint.graph.ops").joinpath("autocast.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    policies: dict[str, Policy] = {}
    names: tuple[Policy, ...] = ("lower_precision", "fp32", "fp32_result", "promote", "banned")
    for policy in names:
        for name in (*data.get(policy, ()), *data["composite"].get(policy, ())):
            policies[name] = policy
    return AutocastLists(policies, frozenset(data["first_input"]["names"]))
