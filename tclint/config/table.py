"""How a field of Settings declares everything there is to say of it, once: `setting`."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeVar

from tclint.config.kinds import Kind
from tclint.core.text import printable

T = TypeVar("T")

Place = Literal["models", "overrides", "report", "baseline", "trace"]
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
    places: tuple[Place, ...]

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
    places: tuple[Place, ...] = (),
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
        return f"{problem}."
    statement, dot, hint = problem.partition(". ")
    given = printable(repr(value))
    given = given if len(given) <= 60 else given[:57] + "..."
    return f"{statement}, not {given}{dot or '.'}{hint}"
