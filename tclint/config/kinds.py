"""Kinds of settings, and how a field of Settings declares all there is to say of it: `setting`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from tclint.core.errors import closest
from tclint.core.text import printable


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What the values of a setting are."""

    parse: Callable[[object], Any]
    """Turns a TOML value, or a flag's text, into the field's value; ValueError says what was expected."""
    metavar: str
    """What stands for the value in a flag's help."""
    json_schema: Mapping[str, Any]
    """JSON Schema of the value."""
    choices: tuple[str, ...] = ()
    """The words that it can be, or a list of; empty: others too."""
    names: Literal["", "rules", "gpus", "files"] = ""
    """What the words name, for completion; files are relative to the configuration file that names them."""


def _revision(value: object) -> str:
    """A git revision; '' for none."""
    if not isinstance(value, str) or value.startswith("-"):
        raise ValueError("expects a git revision such as main or HEAD^1")
    return value


def _patterns(value: object) -> tuple[str, ...]:
    """gitignore patterns; './a' means '/a', as people write paths."""
    patterns = _names(value)
    if any(pattern.removeprefix("!").startswith("../") for pattern in patterns):
        raise ValueError("expects paths below the folder of this file")
    return tuple(re.sub(r"^(!?)\./+", r"\1/", pattern) for pattern in patterns)


def _names(value: object) -> tuple[str, ...]:
    """A string, or an array of strings."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) and item for item in listed):
        raise ValueError("expects a string or an array of strings")
    return tuple(listed)


def _file(value: object) -> str:
    """A path; '' for none."""
    if not isinstance(value, str):
        raise ValueError("expects the path of a file")
    return value


def _selectors(value: object) -> tuple[str, ...]:
    """Rule codes, code prefixes or names; commas separate as well: 'DIM,AMP001'."""
    parts = _split(value)
    if not all(parts):
        raise ValueError("expects rule codes or names such as 'DIM003', 'AMP' or 'vocab-misaligned'")
    return tuple(parts)


def _gpus(value: object) -> tuple[str, ...]:
    """Names of GPUs; commas separate as well: 'a100,h100'."""
    return _names(_split(value))


def _split(value: object) -> list[str]:
    return [part.strip() for text in _names(value) for part in text.split(",")]


def _percent(value: object) -> float:
    """Percent of the step: 1, 0.5, '2%'."""
    text = value.strip().removesuffix("%") if isinstance(value, str) else value
    number = _number(text, "expects percent of the step such as 1 or '0.5%'")
    if number < 0:
        raise ValueError("expects 0 or more percent of the step")
    return number


def _seconds(value: object) -> float:
    """Seconds above zero."""
    number = _number(value, "expects seconds such as 300")
    if number <= 0:
        raise ValueError("expects seconds above 0")
    return number


_TIME = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)")
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def _time_us(value: object) -> float:
    """A time with its unit, '120ms', in us."""
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not float(match["number"]):
        raise ValueError("expects a time with its unit, such as '120ms' or '1.5s'")
    return float(match["number"]) * _US[match["unit"]]


def _price(value: object) -> float:
    """A price in any currency, 2.5; 0 for none."""
    number = _number(value, "expects a price such as 2.5")
    if number < 0:
        raise ValueError("expects a price of 0 or more")
    return number


_MEMORY = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>MiB|MB|M|GiB|GB|G)?", re.IGNORECASE)


def _size_mib(value: object) -> int:
    """MiB as a number, or a text with a unit: '512MiB', '8GiB'."""
    match = _MEMORY.fullmatch(str(value).strip()) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise ValueError("expects MiB as a number or a size such as '8GiB'")
    unit = (match["unit"] or "M")[0].upper()
    mib = float(match["number"]) * (1024 if unit == "G" else 1)
    if not 1 <= mib <= 2**40:
        raise ValueError("expects at least 1 MiB" if mib < 1 else "expects a size that a machine can have")
    return int(mib)


def _at_least(least: int, expected: str) -> Callable[[object], int]:
    """A whole number."""

    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(expected)
        return value

    return parse


def _number(value: object, expected: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(expected) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(expected)
    return float(value)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expects true or false")
    return value


def _choice(known: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            guess = closest(value, known) if isinstance(value, str) else ""
            raise ValueError(f"expects one of {', '.join(known)}{'.' + guess if guess else ''}")
        return value

    return parse


_LISTED_LENGTH = 30
"""Choices that are longer together would crowd the help of a command."""

_NUMBER = {"type": "number", "minimum": 0}
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}

SWITCH = Kind(_switch, "", {"type": "boolean"})
COUNT = Kind(_at_least(1, "expects a whole number above 0"), "N", {"type": "integer", "minimum": 1})
GPU_COUNT = replace(COUNT, parse=_at_least(1, "expects a number of GPUs (--gpu says which)"))
COUNT_OR_ZERO = Kind(
    _at_least(0, "expects a whole number (0: one per CPU core)"), "N", {"type": "integer", "minimum": 0}
)
COUNT_FROM_ZERO = Kind(
    _at_least(0, "expects a whole number, 0 or more"), "N", {"type": "integer", "minimum": 0}
)
TIME = Kind(_time_us, "TIME", _NUMBER)
PRICE = Kind(_price, "PRICE", _NUMBER)
PERCENT = Kind(_percent, "PERCENT", _NUMBER)
SECONDS = Kind(_seconds, "SECONDS", _NUMBER)
SIZE_MIB = Kind(_size_mib, "SIZE", {"type": "integer", "minimum": 1})
INPUTS = Kind(_names, "SPEC", _TEXTS)
INPUT_SETS = Kind(_names, "SPECS", _TEXTS)
ARGUMENTS = Kind(_names, "NAME=VALUE", _TEXTS)
SELECTORS = Kind(_selectors, "RULES", _TEXTS, names="rules")
GPUS = Kind(_gpus, "GPU", _TEXTS, names="gpus")
PATTERNS = Kind(_patterns, "PATTERN", _TEXTS)
REVISION = Kind(_revision, "REVISION", _TEXT)
FILE = Kind(_file, "FILE", _TEXT, names="files")
FILES = Kind(_names, "FILE", _TEXTS, names="files")


def one_of(choices: tuple[str, ...]) -> Kind:
    """One of these words."""
    listed = "|".join(choices)
    metavar = listed if len(listed) <= _LISTED_LENGTH else "NAME"
    return Kind(_choice(choices), metavar, {"enum": list(choices)}, choices)


def some_of(choices: tuple[str, ...], metavar: str) -> Kind:
    """A list of these words; commas separate as well."""
    one = _choice(choices)

    def parse(value: object) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one(part) for part in _split(value)))

    return Kind(parse, metavar, {"type": "array", "items": {"enum": list(choices)}}, choices)


T = TypeVar("T")

SettingPlace = Literal["models", "overrides", "report", "baseline", "trace"]
"""Where a setting is stated, beside its flag and its key: an entry of `models` or of `overrides` may set it;
the JSON report states it; a baseline keeps it with the findings on a traced model, which hang on it; the
cache of traced models keeps it with a graph, which hangs on it."""

_DECLARED = "setting"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set: on the command line as `--key`, under `key` in `[tool.tclint]`."""

    field: str
    """The field of Settings, and the name in JSON."""
    key: str
    default: Any
    kind: Kind
    help: str
    has_flag: bool
    """False: it is said in the configuration file only."""
    places: tuple[SettingPlace, ...]

    def json_value(self, settings: object) -> Any:
        """Its value in some settings, as JSON has it."""
        value = getattr(settings, self.field)
        return list(value) if isinstance(value, tuple) else value


def setting(
    default: T,
    kind: Kind,
    help_text: str,
    *,
    key: str = "",
    has_flag: bool = True,
    places: tuple[SettingPlace, ...] = (),
) -> T:
    """A field of Settings that users can set.

    Args:
        default: a tuple where a flag may be repeated, a bool where the flag is a switch.
        key: empty: the field's name, with hyphens.
    """
    declared = Setting("", key, default, kind, help_text, has_flag, places)
    return dataclasses.field(default=default, metadata={_DECLARED: declared})


def declared_by(settings: type[Any]) -> tuple[Setting, ...]:
    """Everything that the fields of a dataclass declare, in their order."""
    return tuple(
        dataclasses.replace(declared, field=field.name, key=declared.key or field.name.replace("_", "-"))
        for field in dataclasses.fields(settings)
        if (declared := field.metadata.get(_DECLARED)) is not None
    )


def sentence(problem: str, value: object) -> str:
    """'... expects X, not VALUE.', with the hint that may follow X at the end; None: no value to show."""
    if value is None:
        return problem if problem.endswith((".", "?")) else f"{problem}."
    statement, dot, hint = problem.partition(". ")
    given = printable(repr(value))
    given = given if len(given) <= 60 else given[:57] + "..."
    return f"{statement}, not {given}{dot or '.'}{hint}"
