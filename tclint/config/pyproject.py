"""Finds and reads `[tool.tclint]` of pyproject.toml; `tclint.config.settings` has what it may say."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tclint.config.budget import Budget, parse_budget
from tclint.config.declared_models import parse_models
from tclint.config.kinds import PATTERNS, Kind, sentence
from tclint.config.settings import SETTINGS, SETTINGS_BY_KEY, DeclaredModel, Override, Settings, settings_in
from tclint.core.errors import UsageError, closest
from tclint.core.text import printable
from tclint.core.toml import parse_toml
from tclint.core.units import plural

FILE_NAME = "pyproject.toml"

RUN_FIELDS = (
    "cache", "changed_since", "fail_on", "force_exclude", "jobs", "libraries", "memory_limit_mib", "network",
    "rules", "timeout_s",
)  # fmt: skip
"""Settings that hold for a whole run: those of configuration files further down are not asked."""

_STRUCTURE = ("extend", "models", "overrides", "budget")
_OVERRIDE_SETTINGS = settings_in("overrides")
_OVERRIDE_KEYS = ("paths", *(setting.key for setting in _OVERRIDE_SETTINGS))


def with_flags(settings: Settings, flags: Mapping[str, Any]) -> Settings:
    """Settings of a file under the flags of the command line; flags win.

    Args:
        flags: parsed values by field of Settings; only those that the user gave.
    """
    rest = dict(flags)
    selection = {setting.field: rest.pop(setting.field, ()) for setting in _OVERRIDE_SETTINGS}
    if selection["select"]:
        # What the command line selects is all that runs; exceptions for paths still hold.
        kept = tuple(replace(override, select=(), extend_select=()) for override in settings.overrides)
        settings = replace(settings, overrides=kept)
    places = {name: place for name, place in settings.places.items() if name not in flags}
    explicit = settings.explicit | frozenset(rest)
    return replace(settings.selecting(**selection), **rest, explicit=explicit, places=places)


def find_config(start: Path) -> Path | None:
    """The nearest pyproject.toml with a `[tool.tclint]` section, from `start` upwards.

    Raises:
        UsageError: one on the way cannot be read.
    """
    for folder in (start, *start.parents):
        file = folder / FILE_NAME
        if file.is_file() and _section(file) is not None:
            return file
    return None


def load_config(file: Path) -> Settings:
    """Settings of one configuration file and those that it extends.

    Raises:
        UsageError: a file is missing or not TOML, a key is unknown, or a value is not what it should be;
            the message names the file and the line.
    """
    return _load(file, (), None)


def load_met_config(file: Path, run: Settings, run_file: Path | None) -> Settings:
    """Settings of a configuration file that the run did not choose but met: near a target, or in a folder.

    Reading such a file runs nothing: local rules and models are those of the run, as tables of libraries are,
    and what it extends lies in the run's project. `Settings.refused` says what else it asks for.

    Args:
        run: the settings of the run.
        run_file: the file that they are from; None: there is none.

    Raises:
        UsageError: as `load_config`.
    """
    if run_file is not None and os.path.realpath(file) == os.path.realpath(run_file):
        return run
    settings = _load(file, (), run_file.parent if run_file is not None else Path.cwd())
    own = f"if you trust it, run tclint in {_name(file.parent)} or with --config {_name(file)}"
    known = {os.path.realpath(path) for path in run.rules}
    rules = [path for path in settings.rules if os.path.realpath(path) not in known]
    models = [model for model in settings.models if model not in run.models]
    refused = settings.refused
    if rules:
        names = ", ".join(_name(Path(path)) for path in rules)
        sentence = f"{_name(file)} names local rules ({names}), which are code and do not run here; {own}."
        refused += (("rules", sentence),)
    if models:
        count = plural(len(models), "model")
        sentence = f"{_name(file)} declares {count} that this run does not build; {own}."
        refused += (("models", sentence),)
    known = {os.path.realpath(path) for path in run.libraries}
    tables = [path for path in settings.libraries if os.path.realpath(path) not in known]
    if tables:
        names = ", ".join(_name(Path(path)) for path in tables)
        sentence = (
            f"{_name(file)} names tables of libraries ({names}), which this run does not have; "
            f"run tclint in {_name(file.parent)} or with --config {_name(file)}."
        )
        refused += (("libraries", sentence),)
    of_run = {name: getattr(run, name) for name in RUN_FIELDS}
    return replace(settings, **of_run, models=(), refused=refused)


def _load(file: Path, extended_by: tuple[Path, ...], project: Path | None) -> Settings:
    """Settings of a file and those that it extends, which lie in the project, if one is named."""
    file = Path(os.path.abspath(file))
    if file in extended_by:
        chain = " -> ".join(_name(path) for path in (*extended_by, file))
        raise UsageError(f"The configuration files extend each other in a circle: {chain}.")
    text = _read(file)
    section = _section(file, text)
    if section is None:
        raise UsageError(f"{_name(file)} has no [tool.tclint] section; add one, or name another file.")
    reader = _Reader(file, text)
    settings = Settings()
    if "extend" in section:
        base = section["extend"]
        if not isinstance(base, str) or not base:
            raise reader.error("extend", "expects the path of one TOML file", base)
        path = file.parent / os.path.expanduser(base)
        if project is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project)):
            sentence = f"{_name(file)} extends {base!r}, which is not read: it is outside of {project}."
            settings = replace(settings, refused=(("extend", printable(sentence)),))
        elif not path.is_file():
            raise reader.error("extend", f"names {base!r}, which does not exist", None)
        else:
            settings = _load(path, (*extended_by, file), project)
    values: dict[str, Any] = {}
    places = dict(settings.places)
    for name, value in section.items():
        if name in _STRUCTURE:
            continue
        setting = SETTINGS_BY_KEY.get(name)
        if setting is None:
            raise reader.unknown(name, (*SETTINGS_BY_KEY, *_STRUCTURE))
        values[setting.field] = reader.parse(name, setting.kind, value)
        places[setting.field] = reader.place(name)
    if "models" in section:
        values["models"] = reader.models(section["models"])
    if "budget" in section:
        values["budget"] = reader.budget(
            section["budget"], settings.budget, values.get("models", settings.models)
        )
        places["budget"] = reader.place("budget")
    if "exclude" in values:
        values["exclude_root"] = str(file.parent)
    for setting in SETTINGS:
        if setting.kind.names == "files" and values.get(setting.field):
            values[setting.field] = _below(file.parent, values[setting.field])
    overrides = settings.overrides + reader.overrides(section.get("overrides", []))
    explicit = settings.explicit | frozenset(values)
    return replace(settings, **values, overrides=overrides, explicit=explicit, places=places)


def _below(folder: Path, paths: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Paths that are relative to a folder."""
    if isinstance(paths, str):
        return str(folder / os.path.expanduser(paths))
    return tuple(str(folder / os.path.expanduser(path)) for path in paths)


@dataclass(frozen=True, slots=True)
class _Reader:
    """One file's values, and errors that name their line."""

    file: Path
    text: str

    def parse(self, key: str, kind: Kind, value: object, header: str = "[tool.tclint]", nth: int = 0) -> Any:
        try:
            return kind.parse(value)
        except ValueError as error:
            raise self.error(key, str(error), value, header, nth) from None

    def models(self, value: object) -> tuple[DeclaredModel, ...]:
        try:
            return parse_models(value, str(self.file.parent))
        except ValueError as error:
            raise self.error("models", str(error), None) from None

    def budget(self, value: object, base: Budget, declared: Sequence[DeclaredModel]) -> Budget:
        try:
            budget = parse_budget(value, base)
        except ValueError as error:
            raise self.error("budget", str(error), None) from None
        targets = tuple(model.target for model in declared)
        for model in budget.models:
            if model.target not in targets:
                hint = closest(model.target, targets) or " Declare it: models = [...] under [tool.tclint]."
                problem = f"names the model {model.target!r}, which is not among 'models'.{hint}"
                raise self.error("budget", problem, None)
        return budget

    def overrides(self, tables: object) -> tuple[Override, ...]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self.error("overrides", "expects tables under [[tool.tclint.overrides]]", tables)
        return tuple(self._override(table, nth) for nth, table in enumerate(tables))

    def _override(self, table: dict[str, object], nth: int) -> Override:
        header = "[[tool.tclint.overrides]]"
        for name in table:
            if name not in _OVERRIDE_KEYS:
                raise self.unknown(name, _OVERRIDE_KEYS, header, nth)
        paths = self.parse("paths", PATTERNS, table.get("paths", []), header, nth)
        if not paths:
            raise self.error("paths", "is missing: say which paths the override is for", None, header, nth)
        selectors = {
            setting.field: self.parse(setting.key, setting.kind, table[setting.key], header, nth)
            for setting in _OVERRIDE_SETTINGS
            if setting.key in table
        }
        if not selectors:
            raise self.error(
                "paths", "has nothing to override; add select, extend-select or ignore", None, header, nth
            )
        places = {SETTINGS_BY_KEY[key].field: self.place(key, header, nth) for key in table if key != "paths"}
        return Override(paths=paths, root=str(self.file.parent), places=places, **selectors)

    def error(
        self, name: str, problem: str, value: object, header: str = "[tool.tclint]", nth: int = 0
    ) -> UsageError:
        return UsageError(f"{self.place(name, header, nth)}: " + sentence(f"{name!r} {problem}", value))

    def unknown(
        self, name: str, known: tuple[str, ...], header: str = "[tool.tclint]", nth: int = 0
    ) -> UsageError:
        guess = closest(name.replace("_", "-"), known)
        hint = guess or f" The keys are {', '.join(known)}."
        return UsageError(
            f"{self.place(name, header, nth)}: {printable(name)!r} is not a key of {header}.{hint}"
        )

    def place(self, name: str, header: str = "[tool.tclint]", nth: int = 0) -> str:
        line = _line_of(self.text, name, header, nth)
        return _name(self.file) + (f":{line}" if line else "")


def _section(file: Path, text: str | None = None) -> dict[str, Any] | None:
    text = _read(file) if text is None else text
    if "tclint" not in text:
        return None
    try:
        data = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{_name(file)} is not valid TOML: {printable(str(error))}.") from error
    section = data.get("tool", {})
    section = section.get("tclint") if isinstance(section, dict) else None
    if section is not None and not isinstance(section, dict):
        raise UsageError(f"{_name(file)}: tool.tclint must be a table, [tool.tclint].")
    return section


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"There is no configuration file {_name(file)}.") from None
    except OSError as error:
        raise UsageError(f"Cannot read {_name(file)}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"Cannot read {_name(file)}: it is not UTF-8 text (byte {error.start}).") from error


def _line_of(text: str, key: str, header: str, nth: int) -> int | None:
    """Where a key stands: found by looking, since TOML readers keep no positions; None where unsure."""
    wanted = header.strip("[]").replace(" ", "")
    seen = -1
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            name = stripped.split("#", 1)[0].strip().strip("[]").replace(" ", "").replace('"', "")
            seen += name == wanted
            inside = name == wanted and seen == nth
            if name == f"{wanted}.{key}" and seen <= nth:
                return number
        elif inside and re.match(rf"""["']?{re.escape(key)}["']?\s*=""", stripped):
            return number
    return None


def _name(file: Path) -> str:
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return printable(str(file))
    return printable(str(file) if relative.startswith(os.path.join("..", "..", "..")) else relative)
