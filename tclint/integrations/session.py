"""What the integrations share: settings of a session, its report on standard error, and what went wrong."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tclint.config.pyproject import find_config, load_config, with_flags
from tclint.config.settings import SETTINGS_BY_KEY, Settings
from tclint.core.errors import UsageError, closest
from tclint.core.terminal import report_width, wants_colour
from tclint.engine.check import check
from tclint.engine.report import Report
from tclint.engine.script.frameworks import FrameworkSetting
from tclint.report.render import Style, render
from tclint.tracing.worker.in_process import Captured
from tclint.tracing.worker.targets import site_of


class FirstStep:
    """Prints a report once, and never disturbs the run: what goes wrong is a warning."""

    def __init__(self, options: dict[str, Any]) -> None:
        session_settings(options)  # a wrong option is said before hours of training
        self._options = options
        self.report: Report | None = None
        """What was printed; None before the first step, and where the model could not be linted."""

    def lint(
        self,
        model: nn.Module,
        inputs: tuple[Any, ...] | dict[str, Any],
        stated: Iterable[FrameworkSetting],
    ) -> None:
        """Lint the model on the batch that it is about to be called with.

        Args:
            stated: what the framework runs it with.
        """
        try:
            settings = self._settings(stated)
            name = type(model).__name__
            with torch.enable_grad():
                self.report = check(Captured(model, inputs, name, site_of(type(model))), settings)
            print_report(self.report)
        except Exception as error:
            warn(error, f"the first step of {type(model).__name__}")

    def _settings(self, stated: Iterable[FrameworkSetting]) -> Settings:
        # Frameworks that state no precision leave it to torch: float32, and TF32 in cuDNN alone.
        fields: dict[str, Any] = {"precision": "tf32-cudnn", "mode": "train"}
        fields.update({one.setting: one.value for one in stated if one.setting != "batch"})
        return session_settings(self._options, fields)


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
