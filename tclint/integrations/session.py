"""What the integrations share: settings of a session, its report on standard error, and what went wrong."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tclint.config.pyproject import find_config, load_config, with_flags
from tclint.config.settings import SETTINGS_BY_KEY, Settings
from tclint.core.errors import UsageError, closest
from tclint.core.terminal import report_width, wants_colour
from tclint.engine.report import Report
from tclint.report.render import Style, render


def session_settings(options: Mapping[str, Any], stated: Mapping[str, Any] | None = None) -> Settings:
    """Options over what the nearest pyproject.toml says.

    Args:
        options: by the keys of `[tool.tclint]`, as {"gpu": ["h100"], "batch": 32}; with underscores, too.
        stated: by field of Settings, what the run itself says; it holds where neither names another.

    Raises:
        UsageError: there is no such option, or its value is wrong.
    """
    file = find_config(Path.cwd())
    settings = load_config(file) if file is not None else Settings()
    given: dict[str, Any] = {}
    for key, value in options.items():
        setting = SETTINGS_BY_KEY.get(key.replace("_", "-"))
        if setting is None:
            raise UsageError(f"There is no option {key!r}.{closest(key, list(SETTINGS_BY_KEY))}")
        try:
            given[setting.field] = setting.kind.parse(value)
        except ValueError as error:
            raise UsageError(f"The option {key!r} {error}.") from None
    settings = with_flags(settings, given)
    rest = {name: value for name, value in (stated or {}).items() if name not in settings.explicit}
    return replace(settings, **rest)


def print_report(report: Report, end: str = "") -> None:
    """The text report on standard error, which belongs to no program's output."""
    style = Style(colour=wants_colour(sys.stderr, False), width=report_width(sys.stderr))
    print(render(report, "text", style), end=end, file=sys.stderr, flush=True)


def warn(error: Exception, what: str) -> None:
    """A warning that something was not linted; the user's run goes on."""
    text = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
    warnings.warn(f"tclint did not lint {what}: {text}", stacklevel=3)
