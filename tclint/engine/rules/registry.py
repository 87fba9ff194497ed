"""Finds rules (entry points, local folders) and selects them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import TypeVar

from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import Override, Settings
from tclint.core.errors import UsageError, closest
from tclint.core.finding import Finding
from tclint.core.rule import (
    BUDGET_CODE,
    BUDGET_NAME,
    CRASH_CODE,
    CRASH_NAME,
    UNREADABLE_CODE,
    UNREADABLE_NAME,
    Rule,
    rules_of,
)
from tclint.engine.retired import means, named_by, retired_as
from tclint.engine.rules.fields import check_fields
from tclint.engine.rules.index import PACKAGE, imported, indexed_rules
from tclint.engine.suppressions import INVALID_CODE, INVALID_NAME, UNUSED_CODE, UNUSED_NAME
from tclint.source.source_rule import SourceRule

ENTRY_POINT_GROUP = "tclint.rules"
_Selecting = TypeVar("_Selecting", Settings, Override)
_OWN = {
    UNUSED_CODE: UNUSED_NAME,
    UNREADABLE_CODE: UNREADABLE_NAME,
    INVALID_CODE: INVALID_NAME,
    BUDGET_CODE: BUDGET_NAME,
}
"""tclint's own findings that can be ignored like those of rules; the crash of a rule cannot."""


def all_rules(local: Sequence[str] = ()) -> list[type[Rule]]:
    """Every rule class: of installed packages that register in the entry-point group, then local ones,
    sorted by code.

    Args:
        local: files or folders with modules that list rule classes in `RULES`.

    Raises:
        UsageError: a rule module cannot be imported, or two rules share a code or a name and are not the
            two sides of one rule: a GraphRule for traced models and a SourceRule for source files.
    """
    return _found(local, indexed=False)


def known_rules(local: Sequence[str] = ()) -> list[type[Rule]]:
    """As `all_rules`, at a fraction of its time: tclint's own are stand-ins, which have the fields of their
    rule, not its page, and import it when it runs."""
    return _found(local, indexed=True)


def rules_with(codes: Container[str], local: Sequence[str] = ()) -> list[type[Rule]]:
    """As `all_rules`, of the rules with these codes alone; no other rule of tclint's own is imported."""
    return [imported(rule) for rule in known_rules(local) if rule.code in codes]


def _found(local: Sequence[str], *, indexed: bool) -> list[type[Rule]]:
    found: list[type[Rule]] = []
    points = _registered(importlib.metadata.entry_points, tuple(map(_as_it_is, sys.path)))
    if PACKAGE not in points:
        raise UsageError("tclint's own rules are not installed; reinstall tensorcore-lint.")
    for value in sorted(points):
        try:
            own = indexed_rules() if indexed and value == PACKAGE else None
            module = points[value].load() if own is None else None
        except Exception as error:
            raise UsageError(
                _moved(error)
                or f"The rule package {value!r} cannot be imported ({type(error).__name__}: {error}); "
                "reinstall or remove it."
            ) from error
        found.extend(own if own is not None else _rules_of(module, value))
    for path in local:
        for file in _python_files(path):
            found.extend(_rules_of(_import_file(file), file))
    _check_unique(found)
    return sorted(found, key=_order)


@lru_cache(maxsize=4)
def _registered(
    entry_points: Callable[..., Iterable[EntryPoint]], _path: tuple[tuple[str, int], ...]
) -> Mapping[str, EntryPoint]:
    """Value -> entry point that a package registers; cached, since reading all metadata takes longer than
    linting a file."""
    # An editable install can show one entry point twice, through its finder and its dist-info.
    return {point.value: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _as_it_is(folder: str) -> tuple[str, int]:
    """A folder of the import path and its time of last change, which shows new installations."""
    try:
        return folder, os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return folder, 0


def _order(rule: type[Rule]) -> tuple[str, bool]:
    """The sort key of a rule: its code, and of two sides the one for traced models first."""
    return rule.code, issubclass(rule, SourceRule)


def load_rules(settings: Settings) -> list[Rule]:
    """Instances of the rules that the settings select, sorted by code.

    Raises:
        UsageError: a selector names no rule.
    """
    rules = known_rules(settings.rules)
    matching = {}
    for name in ("select", "extend_select", "ignore"):
        with settings.saying_where(name):
            matching[name] = _matching(getattr(settings, name), rules)
    chosen = matching["select"]
    if not settings.select:
        chosen = {rule for rule in rules if rule.enabled_by_default}
    chosen |= matching["extend_select"]
    chosen -= matching["ignore"]
    return [rule() for rule in rules if rule in chosen]


def without_unknown_rules(settings: Settings) -> Settings:
    """The settings without selectors that name no rule, such as those of local rules that do not run."""
    rules = known_rules(settings.rules)
    names = {rule.code: rule.name for rule in rules} | _OWN

    def known(selectors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            selector
            for selector in selectors
            if selector.upper() == "ALL"
            or any(means(selector, *rule) for rule in names.items())
            or retired_as(selector)
        )

    def of(one: _Selecting) -> _Selecting:
        select = known(one.select)
        # A selection of only unknown rules selects nothing; leaving it empty would select the default rules.
        ignore = ("ALL",) if one.select and not select else known(one.ignore)
        return replace(one, select=select, extend_select=known(one.extend_select), ignore=ignore)

    return replace(of(settings), overrides=tuple(of(override) for override in settings.overrides))


class Selection:
    """The rules of a run: those that the settings select for any path, and where each of them counts.

    Raises:
        UsageError: a selector names no rule.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sides_by_settings: dict[Settings, frozenset[tuple[str, bool]]] = {}
        chosen = {_order(type(rule)): rule for rule in load_rules(settings)}
        for override in settings.overrides:
            on_path = settings.selecting(override.select, override.extend_select, override.ignore)
            on_path = replace(on_path, places={**settings.places, **override.places})
            chosen.update((_order(type(rule)), rule) for rule in load_rules(on_path))
        self.rules: list[Rule] = [chosen[order] for order in sorted(chosen)]
        self._known = frozenset(code for code, _ in chosen)
        self._named: dict[str, str] | None = None

    def allows(self, finding: Finding) -> bool:
        """Whether the finding's rule is selected for the finding's path. tclint's own findings are unless
        ignored, except malformed suppressions, which have to be selected like rules.

        One of a rule's two sides may be off by default; a finding without a target is from the side for
        sources.
        """
        on_path = self._settings.for_path(finding.location.path)
        if finding.code != CRASH_CODE and _named_by(on_path.ignore, finding):
            return False
        if finding.code in _OWN:
            chosen = (*on_path.select, *on_path.extend_select) if on_path.select else ("ALL",)
            return finding.code != INVALID_CODE or _named_by(chosen, finding)
        if finding.code not in self._known:
            return True
        if on_path not in self._sides_by_settings:
            rules = load_rules(on_path)
            self._sides_by_settings[on_path] = frozenset(
                (rule.code, isinstance(rule, SourceRule)) for rule in rules
            )
        return (finding.code, finding.target is None) in self._sides_by_settings[on_path]

    def why_unknown(self, selector: str) -> str | None:
        """A sentence on why a code, prefix or name in a comment means no rule; None if it means one."""
        if self._named is None:
            rules = _found(self._settings.rules, indexed=True)
            self._named = {rule.code: rule.name for rule in rules} | _OWN | {CRASH_CODE: CRASH_NAME}
        if any(means(selector, code, name) for code, name in self._named.items()) or retired_as(selector):
            return None
        return _unknown(selector, self._named)


def find_rule(code_or_name: str, local: Sequence[str] = ()) -> tuple[type[Rule], ...]:
    """The rule of that code or name: one class, or the sides for traced models and for sources.

    Raises:
        UsageError: there is none; the message names the closest.
    """
    rules = known_rules(local)
    code, name = code_or_name.upper(), code_or_name.lower()
    found = tuple(imported(rule) for rule in rules if code == rule.code or name == rule.name)
    if not found:
        gone = retired_as(code_or_name)
        if gone is not None:
            raise UsageError(gone.sentence())
        raise UsageError(_unknown(code_or_name, {rule.code: rule.name for rule in rules}))
    return found


def _matching(selectors: Iterable[str], rules: Sequence[type[Rule]]) -> set[type[Rule]]:
    chosen: set[type[Rule]] = set()
    for selector in selectors:
        if selector.upper() == "ALL":
            chosen.update(rules)
            continue
        hits = {rule for rule in rules if means(selector, rule.code, rule.name)}
        own = any(means(selector, code, name) for code, name in _OWN.items())
        if not hits and not own and retired_as(selector) is None:
            raise UsageError(_unknown(selector, {rule.code: rule.name for rule in rules}))
        chosen |= hits
    return chosen


def _named_by(selectors: Sequence[str], finding: Finding) -> bool:
    return any(one.upper() == "ALL" for one in selectors) or named_by(selectors, finding) is not None


def _unknown(selector: str, names_by_code: Mapping[str, str]) -> str:
    known = [*names_by_code, *names_by_code.values()]
    guess = closest(selector.upper(), known) or closest(selector.lower(), known)
    return f"No rule is called {selector!r}.{guess} `tclint rules` lists them."


def _rules_of(module: ModuleType | None, origin: str) -> list[type[Rule]]:
    listed = getattr(module, "RULES", None)
    if listed is None:
        found = ", ".join(rule.__name__ for rule in rules_of(module)) if module is not None else ""
        advice = f"; end it with RULES = ({found},)" if found else ""
        raise UsageError(f"The rule module {origin!r} defines no RULES tuple{advice}.")
    if not isinstance(listed, tuple | list):
        raise UsageError(f"RULES of {origin!r} must be a tuple of rule classes, not {listed!r}.")
    for rule in listed:
        if not (isinstance(rule, type) and issubclass(rule, GraphRule | SourceRule)):
            raise UsageError(f"{rule!r} in RULES of {origin!r} is not a GraphRule or SourceRule class.")
        check_fields(rule)
    return list(listed)


def _python_files(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        return [
            os.path.join(path, name) for name in names if name.endswith(".py") and not name.startswith("_")
        ]
    raise UsageError(f"The local rules path {path!r} does not exist; fix `rules` in [tool.tclint].")


def _import_file(path: str) -> ModuleType:
    absolute = os.path.abspath(path)
    name = "tclint_local_rules." + os.path.splitext(os.path.basename(absolute))[0]
    spec = importlib.util.spec_from_file_location(name, absolute)
    if spec is None or spec.loader is None:
        raise UsageError(f"The local rule file {path!r} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        lines = [line for frame, line in frames if frame.f_code.co_filename == absolute]
        where = f" at line {lines[-1]}" if lines else ""
        raise UsageError(
            _moved(error)
            or f"The local rule file {path!r} failed{where} with {type(error).__name__}: {error}."
        ) from error
    return module


def _moved(error: Exception) -> str | None:
    """Advice for a rule that imports a module of tclint which does not, or no longer, exist; else None."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None or not missing.startswith("tclint."):
        return None
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    where = f"{frame.f_code.co_filename}:{line}"
    return f"{where}: there is no module {missing}; import what rules are made of from tclint.plugin."


def _check_unique(rules: Sequence[type[Rule]]) -> None:
    seen: dict[tuple[str, bool], type[Rule]] = {}
    names: dict[str, str] = {}
    for rule in rules:
        side = issubclass(rule, SourceRule)
        for key in (rule.code, rule.name):
            other = seen.setdefault((key, side), rule)
            if other is not rule:
                raise _both_claim(key, other, rule)
        for key, value in ((rule.code, rule.name), (rule.name, rule.code)):
            if names.setdefault(key, value) != value:
                raise _both_claim(key, seen[key, not side], rule)


def _both_claim(key: str, one: type[Rule], other: type[Rule]) -> UsageError:
    return UsageError(
        f"Rules {one.__module__}.{one.__name__} and {other.__module__}.{other.__name__} both claim {key!r}; "
        "choose another for one of them (`tclint rules` lists those that are taken)."
    )
