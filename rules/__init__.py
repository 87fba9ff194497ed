"""tclint's own rules, one module per topic; registered through the entry-point group `tclint.rules`."""

from __future__ import annotations

import importlib
import pkgutil

from tclint.rule import Rule

# Every module of the package is a topic that lists its rules in RULES: a new file needs no other line.
RULES: tuple[type[Rule], ...] = tuple(
    rule
    for topic in sorted(module.name for module in pkgutil.iter_modules(__path__))
    for rule in importlib.import_module(f"{__name__}.{topic}").RULES
)
