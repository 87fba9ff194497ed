"""Reads `[tool.tclint]` of pyproject.toml. `KEYS` is the one list of what may be said, with its help."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tclint.config import FAIL_ON, MODES, PRECISIONS, Override, Settings
from tclint.errors import UsageError, closest
from tclint.terminal import printable

FILE_NAME = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be set, in the file under `name` and on the command line as `--name`."""

    name: str
    field: str
    """The field of Settings."""
    help: str
    parse: Callable[[object], object]
    """Turns a TOML value, or a flag's text, into the field's value; ValueError says what was expected."""


def parse_patterns(value: object) -> tuple[str, ...]:
    """gitignore patterns; './a' means '/a', as people write paths."""
    patterns = parse_names(value)
    if any(pattern.removeprefix("!").startswith("../") for pattern in patterns):
        raise ValueError("expects paths below the folder of this file")
    return tuple(re.sub(r"^(!?)\./+", r"\1/", pattern) for pattern in patterns)


def parse_names(value: object) -> tuple[str, ...]:
    """A string, or an array of strings."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) and item for item in listed):
        raise ValueError("expects a string or an array of strings")
    return tuple(listed)


def parse_selectors(value: object) -> tuple[str, ...]:
    """Rule codes, code prefixes or names; commas separate as well: 'DIM,AMP001'."""
    parts = [part.strip() for text in parse_names(value) for part in text.split(",")]
    if not all(parts):
        raise ValueError("expects rule codes or names such as 'DIM003', 'AMP' or 'vocab-misaligned'")
    return tuple(parts)


def parse_min_gain(value: object) -> float:
    """Percent of the step: 1, 0.5, '2%'."""
    text = value.strip().removesuffix("%") if isinstance(value, str) else value
    number = _number(text, "expects percent of the step such as 1 or '0.5%'")
    if number < 0:
        raise ValueError("expects 0 or more percent of the step")
    return number


def parse_timeout(value: object) -> float:
    """Seconds above zero."""
    number = _number(value, "expects seconds such as 300")
    if number <= 0:
        raise ValueError("expects seconds above 0")
    return number


_MEMORY = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>MiB|MB|M|GiB|GB|G)?", re.IGNORECASE)


def parse_memory_mib(value: object) -> int:
    """MiB as a number, or a text with a unit: '512MiB', '8GiB'."""
    match = _MEMORY.fullmatch(str(value).strip()) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise ValueError("expects MiB as a number or a size such as '8GiB'")
    unit = (match["unit"] or "M")[0].upper()
    mib = float(match["number"]) * (1024 if unit == "G" else 1)
    if not 1 <= mib <= 2**40:
        raise ValueError("expects at least 1 MiB" if mib < 1 else "expects a size that a machine can have")
    return int(mib)


def parse_batch(value: object) -> int:
    """A whole number above zero."""
    number = _whole(value)
    if number < 1:
        raise ValueError("expects a whole number above 0")
    return number


def parse_jobs(value: object) -> int:
    """A whole number; 0 means one per CPU core."""
    number = _whole(value)
    if number < 0:
        raise ValueError("expects a whole number (0: one per CPU core)")
    return number


def _whole(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expects a whole number")
    return value


def _number(value: object, expected: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(expected) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(expected)
    return float(value)


def _parse_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expects true or false")
    return value


def _one_of(known: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            guess = closest(value, known) if isinstance(value, str) else ""
            raise ValueError(f"expects one of {', '.join(known)}{'.' + guess if guess else ''}")
        return value

    return parse


KEYS: tuple[Key, ...] = (
    Key("select", "select", "Only these rules: codes, code prefixes, names, or ALL.", parse_selectors),
    Key("extend-select", "extend_select", "These rules too.", parse_selectors),
    Key("ignore", "ignore", "Not these rules.", parse_selectors),
    Key("gpu", "gpus", "GPUs to predict for (`tclint gpus` lists them).", parse_names),
    Key(
        "precision",
        "precision",
        "fp16 and bf16 mean autocast over fp32 weights; tf32 and fp32 mean no autocast.",
        _one_of(PRECISIONS),
    ),
    Key("mode", "mode", "train: forward, backward and optimizer; infer: forward only.", _one_of(MODES)),
    Key("compiled", "compiled", "Predict for torch.compile instead of eager execution.", _parse_bool),
    Key("batch", "batch", "Resize the leading dimension of every model input.", parse_batch),
    Key(
        "input",
        "inputs",
        "A model input: '8,3,224,224', 'int64[8,128]' or 'mask=bool[8,128]'; again for the next.",
        parse_names,
    ),
    Key(
        "min-gain",
        "min_gain_percent",
        "List a finding if its fix is predicted to gain at least this percentage of the step.",
        parse_min_gain,
    ),
    Key("fail-on", "fail_on", "Exit with 1 if there is a finding of this level or above.", _one_of(FAIL_ON)),
    Key("timeout", "timeout_s", "Seconds to import, build and trace one model.", parse_timeout),
    Key(
        "memory-limit", "memory_limit_mib", "Memory to build one model in: MiB, or '8GiB'.", parse_memory_mib
    ),
    Key("jobs", "jobs", "Models traced at once; 0: one per CPU core.", parse_jobs),
    Key(
        "exclude",
        "exclude",
        "Paths that the source rules leave out, as in .gitignore, relative to the configuration file.",
        parse_patterns,
    ),
    Key(
        "rules",
        "rules",
        "Files or folders with your own rules, relative to the configuration file.",
        parse_names,
    ),
)
"""Every key of `[tool.tclint]` but `extend` (another file whose settings come first) and `overrides`
(an array of tables with `paths`, `select`, `extend-select`, `ignore`: other rules for some paths)."""

KEYS_BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}
_STRUCTURE = ("extend", "overrides")
_OVERRIDE_KEYS = ("paths", "select", "extend-select", "ignore")


def parse_flag(name: str, text: str | list[str]) -> object:
    """The value of a flag, parsed as the key of the same name is.

    Raises:
        UsageError: it is not what the key expects.
    """
    try:
        return KEYS_BY_NAME[name].parse(text)
    except ValueError as error:
        raise UsageError(_sentence(f"--{name} {error}", text)) from None


def with_flags(settings: Settings, flags: Mapping[str, Any]) -> Settings:
    """Settings of a file under the flags of the command line; flags win.

    Args:
        flags: parsed values by field of Settings; only those that the user gave.
    """
    rest = dict(flags)
    selection = {name: rest.pop(name, ()) for name in ("select", "extend_select", "ignore")}
    if selection["select"]:
        # What the command line selects is all that runs; exceptions for paths still hold.
        kept = tuple(replace(override, select=(), extend_select=()) for override in settings.overrides)
        settings = replace(settings, overrides=kept)
    return replace(settings.selecting(**selection), **rest)


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
    return _load(file, ())


def _load(file: Path, extended_by: tuple[Path, ...]) -> Settings:
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
        path = file.parent / Path(base).expanduser()
        if not path.is_file():
            raise reader.error("extend", f"names {base!r}, which does not exist", None)
        settings = _load(path, (*extended_by, file))
    values: dict[str, Any] = {}
    for name, value in section.items():
        if name in _STRUCTURE:
            continue
        key = KEYS_BY_NAME.get(name)
        if key is None:
            raise reader.unknown(name, (*KEYS_BY_NAME, *_STRUCTURE))
        values[key.field] = reader.parse(key, value)
    if "exclude" in values:
        values["exclude_root"] = str(file.parent)
    if "rules" in values:
        values["rules"] = tuple(str(file.parent / Path(rule).expanduser()) for rule in values["rules"])
    overrides = settings.overrides + reader.overrides(section.get("overrides", []))
    return replace(settings, **values, overrides=overrides)


@dataclass(frozen=True, slots=True)
class _Reader:
    """One file's values, and errors that name their line."""

    file: Path
    text: str

    def parse(self, key: Key, value: object, header: str = "[tool.tclint]", nth: int = 0) -> object:
        try:
            return key.parse(value)
        except ValueError as error:
            raise self.error(key.name, str(error), value, header, nth) from None

    def overrides(self, tables: object) -> tuple[Override, ...]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self.error("overrides", "expects tables under [[tool.tclint.overrides]]", tables)
        return tuple(self._override(table, nth) for nth, table in enumerate(tables))

    def _override(self, table: dict[str, object], nth: int) -> Override:
        header = "[[tool.tclint.overrides]]"
        for name in table:
            if name not in _OVERRIDE_KEYS:
                raise self.unknown(name, _OVERRIDE_KEYS, header, nth)
        paths_key = Key("paths", "paths", "", parse_patterns)
        paths = self.parse(paths_key, table.get("paths", []), header, nth)
        if not paths:
            raise self.error("paths", "is missing: say which paths the override is for", None, header, nth)
        selectors = {
            KEYS_BY_NAME[name].field: self.parse(KEYS_BY_NAME[name], table[name], header, nth)
            for name in ("select", "extend-select", "ignore")
            if name in table
        }
        if not selectors:
            raise self.error(
                "paths", "has nothing to override; add select, extend-select or ignore", None, header, nth
            )
        return Override(paths=paths, root=str(self.file.parent), **selectors)  # type: ignore[arg-type]

    def error(
        self, name: str, problem: str, value: object, header: str = "[tool.tclint]", nth: int = 0
    ) -> UsageError:
        return UsageError(f"{self._place(name, header, nth)}: " + _sentence(f"{name!r} {problem}", value))

    def unknown(
        self, name: str, known: tuple[str, ...], header: str = "[tool.tclint]", nth: int = 0
    ) -> UsageError:
        guess = closest(name.replace("_", "-"), known)
        hint = guess or f" The keys are {', '.join(known)}."
        return UsageError(
            f"{self._place(name, header, nth)}: {printable(name)!r} is not a key of {header}.{hint}"
        )

    def _place(self, name: str, header: str, nth: int) -> str:
        line = _line_of(self.text, name, header, nth)
        return _name(self.file) + (f":{line}" if line else "")


def _section(file: Path, text: str | None = None) -> dict[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    text = _read(file) if text is None else text
    if "tclint" not in text:
        return None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
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


def _sentence(problem: str, value: object) -> str:
    """'... expects X, not VALUE.', with the hint that may follow X at the end."""
    statement, dot, hint = problem.partition(". ")
    given = "" if value is None else f", not {_shown(value)}"
    return f"{statement}{given}{dot or '.'}{hint}"


def _shown(value: object) -> str:
    shown = printable(repr(value))
    return shown if len(shown) <= 60 else shown[:57] + "..."
