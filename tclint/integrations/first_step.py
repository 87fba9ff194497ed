"""What the callbacks of training frameworks share: the model, linted on the first batch that it trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from tclint.config.keywords import session_settings
from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.engine.report import Report
from tclint.engine.script.frameworks import FrameworkSetting
from tclint.integrations.session import print_report, warn
from tclint.tracing.worker.objects import Captured
from tclint.tracing.worker.targets import site_of


class FirstStep:
    """Prints a report once, and never disturbs the run: what goes wrong is a warning."""

    def __init__(self, options: dict[str, Any]) -> None:
        session_settings(options)  # a wrong option fails now, not after hours of training
        self._options = options
        self.report: Report | None = None
        """What was printed; None before the first step, and where the model could not be linted."""

    def lint(
        self,
        model: nn.Module,
        inputs: tuple[Any, ...] | dict[str, Any],
        stated: Iterable[FrameworkSetting],
        prepare: Callable[[nn.Module], object] | None = None,
    ) -> None:
        """Lint the model on the batch that it is about to be called with.

        Args:
            stated: what the framework runs it with.
            prepare: changes the model for the trace alone.
        """
        try:
            settings = self._settings(stated)
            name = type(model).__name__
            self.report = check(Captured(model, inputs, name, site_of(type(model)), prepare), settings)
            print_report(self.report)
        except Exception as error:
            warn(error, f"the first step of {type(model).__name__}")

    def _settings(self, stated: Iterable[FrameworkSetting]) -> Settings:
        # Frameworks that state no precision leave it to torch: float32, and TF32 in cuDNN alone.
        fields: dict[str, Any] = {"precision": "tf32-cudnn", "mode": "train"}
        fields.update({one.setting: one.value for one in stated if one.setting != "batch"})
        return session_settings(self._options, fields)
