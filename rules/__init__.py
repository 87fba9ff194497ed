"""tclint's own rules, one module per topic; registered through the entry-point group `tclint.rules`.

A run that needs a few rules imports these alone (tclint.engine.rules.index); RULES imports all.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from tclint.plugin import Rule, rules_of

RULES: tuple[type[Rule], ...]


def __getattr__(name: str) -> Any:
    if name != "RULES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Every rule class in a module of the package is a rule: a new file needs no other line.
    modules = pkgutil.walk_packages(__path__, f"{__name__}.")
    topics = sorted(module.name for module in modules if not module.ispkg)
    found = tuple(rule for topic in topics for rule in rules_of(importlib.import_module(topic)))
    globals()["RULES"] = found
    return found
