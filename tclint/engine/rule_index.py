"""What rules say of themselves, kept beside them: a run imports only the rules that can fire.

`rules/index.json` is written by `python docs/generate.py`. An entry counts only while its module declares
what it did then; a module that is new or says something else is imported, as all are without the index.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from tclint.analysis.graph_rule import GraphRule
from tclint.core.rule import Rule
from tclint.source.source_rule import SourceRule

PACKAGE = "tclint_rules"
FILE = "index.json"
_DIGEST_BYTES = 16
_CLASS = re.compile(rb"^class \w+\([^)\n]*Rule\b[^)\n]*\):", re.MULTILINE)
_PLAIN = ("code", "name", "since", "level", "confidence", "enabled_by_default")


@lru_cache(maxsize=1)
def indexed_rules() -> tuple[type[Rule], ...] | None:
    """tclint's own rules, most of them as stand-ins that import the rule when it is first run.

    None: there is no index to go by, import the package.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if len(folders) != 1:
        return None
    try:
        with open(os.path.join(folders[0], FILE), encoding="utf-8") as file:
            known = json.load(file)
        return tuple(rule for module in _modules(folders[0]) for rule in _rules_of(module, folders[0], known))
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


def _rules_of(module: str, folder: str, known: Mapping[str, Any]) -> Iterator[type[Rule]]:
    entry = known.get(module)
    if entry is None or entry["digest"] != _digest(folder, module):
        yield from importlib.import_module(f"{PACKAGE}.{module}").RULES
        return
    for fields in entry["rules"]:
        yield _stand_in(module, fields)


def _digest(folder: str, module: str) -> str:
    with open(os.path.join(folder, *module.split(".")) + ".py", "rb") as file:
        # Version control may have rewritten the line ends.
        data = file.read().replace(b"\r\n", b"\n")
    return hashlib.blake2b(b"\0".join(_declared(data)), digest_size=_DIGEST_BYTES).hexdigest()


def _declared(data: bytes) -> Iterator[bytes]:
    """What of a module says what its rules are: all but the methods and the functions below."""
    classes = list(_CLASS.finditer(data))
    yield data[: classes[0].start()] if classes else data
    for match in classes:
        end = data.find(b"\n    def ", match.end())
        yield data[match.start() : end if end >= 0 else len(data)]
    listed = data.find(b"\nRULES")
    yield data[listed : data.find(b"\n\n", listed + 1)] if listed >= 0 else b""
    if b"    def applies(" in data:
        yield b"applies"


def _stand_in(module: str, fields: Mapping[str, Any]) -> type[Rule]:
    """A class that says of itself what the rule's class does, and runs that one."""

    @lru_cache(maxsize=1)
    def rule() -> Any:
        return getattr(importlib.import_module(f"{PACKAGE}.{module}"), fields["class"])()

    members: dict[str, Any] = {name: fields[name] for name in _PLAIN}
    members["check"] = lambda _, context: rule().check(context)
    members["__module__"] = f"{PACKAGE}.{module}"
    base: type[Rule] = GraphRule
    if fields["kind"] == "source":
        base = SourceRule
        members["triggers"] = tuple(fields["triggers"])
        members["requires"] = tuple(fields["requires"])
        members["priced_as"] = tuple(fields.get("priced_as", ()))
        if fields["pattern"] is not None:
            text, flags = fields["pattern"]
            members["pattern"] = re.compile(text.encode("latin-1"), flags)
        if fields["asks_settings"]:
            members["applies"] = lambda _, settings: rule().applies(settings)
    return cast("type[Rule]", type(fields["class"], (base,), members))


def fields_of(rule: type[Rule]) -> dict[str, Any]:
    """What the index says of a rule."""
    fields: dict[str, Any] = {"class": rule.__name__, "kind": "graph"}
    fields.update({name: getattr(rule, name) for name in _PLAIN})
    if issubclass(rule, SourceRule):
        pattern = rule.pattern
        fields["kind"] = "source"
        fields["triggers"] = list(rule.triggers)
        fields["requires"] = list(rule.requires)
        fields["pattern"] = None if pattern is None else [pattern.pattern.decode("latin-1"), pattern.flags]
        if rule.priced_as:
            fields["priced_as"] = list(rule.priced_as)
        fields["asks_settings"] = rule.applies is not SourceRule.applies
    return fields


def build() -> str:
    """The index of the rules as they are now, as text."""
    package = importlib.import_module(PACKAGE)
    folder = os.path.dirname(str(package.__file__))
    index = {}
    for module in _modules(folder):
        rules = importlib.import_module(f"{PACKAGE}.{module}").RULES
        index[module] = {"digest": _digest(folder, module), "rules": [fields_of(rule) for rule in rules]}
    return json.dumps(index, indent=1, sort_keys=True) + "\n"
