"""What the callbacks of training frameworks share: the model, linted on the first batch that it trains on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from tclint.config.keywords import session_settings
from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.engine.report import Report
from tclint.integrations.session import print_report, warn
from tclint.source.recipes.reading import recipe_of
from tclint.source.recipes.step import step_of
from tclint.tracing.worker.objects import Captured
from tclint.tracing.worker.targets import site_of

_READ = ("precision", "accumulation", "optimizer", "compiled")


class FirstStep:
    """Prints a report once, and never disturbs the run: what goes wrong is a warning."""

    def __init__(self, framework: str, options: dict[str, Any]) -> None:
        """Args:
        framework: the format of its configuration files, whose table tells what its settings mean.
        options: keys of `[tool.tclint]`.
        """
        self._framework = framework
        session_settings(options)  # a wrong option fails now, not after hours of training
        self._options = options
        self.report: Report | None = None
        """What was printed; None before the first step, and where the model could not be linted."""

    def lint(
        self,
        model: nn.Module,
        inputs: tuple[Any, ...] | dict[str, Any],
        given: Mapping[str, object],
        prepare: Callable[[nn.Module], object] | None = None,
    ) -> None:
        """Lint the model on the batch that it is about to be called with.

        Args:
            given: the settings that the framework runs it with.
            prepare: changes the model for the trace alone.
        """
        try:
            settings = self._settings(given)
            name = type(model).__name__
            self.report = check(Captured(model, inputs, name, site_of(type(model)), prepare), settings)
            print_report(self.report)
        except Exception as error:
            warn(error, f"the first step of {type(model).__name__}")

    def _settings(self, given: Mapping[str, object]) -> Settings:
        # Frameworks that state no precision leave it to torch: float32, and TF32 in cuDNN alone.
        fields: dict[str, Any] = {"precision": "tf32-cudnn", "mode": "train"}
        stated = step_of(recipe_of(self._framework, given)).stated
        fields.update({name: stated[name].value for name in _READ if name in stated})
        return session_settings(self._options, fields)
