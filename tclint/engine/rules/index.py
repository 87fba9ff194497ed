"""The index of the rules' fields, so that a run imports only the rules that can fire.

`python docs/generate.py` writes `rules/index.json`; modules that are not in it are imported, and without the
index all are.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from tclint.analysis.graph_rule import GraphRule
from tclint.core.rule import Rule, rules_of
from tclint.source.source_rule import SourceRule

PACKAGE = "tclint_rules"
FILE = "index.json"
_PLAIN = ("code", "name", "level", "confidence", "enabled_by_default")
_TUPLES = ("triggers", "requires", "program", "priced_as")


@lru_cache(maxsize=1)
def indexed_rules() -> tuple[type[Rule], ...] | None:
    """tclint's own rules, most of them as stand-ins that import the rule when it first runs.

    None if there is no index; the package is imported then.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if len(folders) != 1:
        return None
    try:
        with open(os.path.join(folders[0], FILE), encoding="utf-8") as file:
            known = json.load(file)
        return tuple(rule for module in _modules(folders[0]) for rule in _rules_of(module, known))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _modules(folder: str) -> list[str]:
    """The rule modules of the families under `folder`, as 'dims.vocabulary'."""
    families = (entry.name for entry in os.scandir(folder) if entry.is_dir())
    return sorted(
        f"{family}.{name[:-3]}"
        for family in families
        for name in os.listdir(os.path.join(folder, family))
        if name.endswith(".py") and name != "__init__.py"
    )


def _rules_of(module: str, known: Mapping[str, Any]) -> Iterator[type[Rule]]:
    if module not in known:
        yield from rules_of(importlib.import_module(f"{PACKAGE}.{module}"))
        return
    for fields in known[module]:
        yield _stand_in(module, fields)


def _stand_in(module: str, fields: Mapping[str, Any]) -> type[Rule]:
    """A class with the fields of a rule's class, which it imports and runs when needed."""

    @lru_cache(maxsize=1)
    def rule() -> Any:
        return getattr(importlib.import_module(f"{PACKAGE}.{module}"), fields["class"])()

    members: dict[str, Any] = {name: fields[name] for name in _PLAIN}
    members["check"] = lambda _, context: rule().check(context)
    members["__module__"] = f"{PACKAGE}.{module}"
    base: type[Rule] = GraphRule
    if fields["kind"] == "source":
        base = SourceRule
        members["change"] = lambda _, finding, context: rule().change(finding, context)
        members.update({name: tuple(fields[name]) for name in _TUPLES})
        if fields["pattern"] is not None:
            text, flags = fields["pattern"]
            members["pattern"] = re.compile(text.encode("latin-1"), flags)
        if fields["asks_settings"]:
            members["applies"] = lambda _, settings: rule().applies(settings)
    return cast("type[Rule]", type(fields["class"], (base,), members))


def imported(rule: type[Rule]) -> type[Rule]:
    """The rule that a stand-in stands for; any other rule as it is."""
    if rule.__module__.partition(".")[0] != PACKAGE:
        return rule
    return cast("type[Rule]", getattr(importlib.import_module(rule.__module__), rule.__name__))


def fields_of(rule: type[Rule]) -> dict[str, Any]:
    """The fields of a rule as the index stores them."""
    fields: dict[str, Any] = {"class": rule.__name__, "kind": "graph"}
    fields.update({name: getattr(rule, name) for name in _PLAIN})
    if issubclass(rule, SourceRule):
        pattern = rule.pattern
        fields.update({name: list(getattr(rule, name)) for name in _TUPLES})
        fields["kind"] = "source"
        fields["pattern"] = None if pattern is None else [pattern.pattern.decode("latin-1"), pattern.flags]
        fields["asks_settings"] = rule.applies is not SourceRule.applies
    return fields


def build() -> str:
    """The text of the index for the present rules."""
    package = importlib.import_module(PACKAGE)
    folder = os.path.dirname(str(package.__file__))
    index = {}
    for module in _modules(folder):
        rules = rules_of(importlib.import_module(f"{PACKAGE}.{module}"))
        index[module] = [fields_of(rule) for rule in rules]
    return json.dumps(index, indent=1, sort_keys=True) + "\n"
