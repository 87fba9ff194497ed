"""What the integrations share: inputs as objects, the report on standard error, and what went wrong."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.target import is_path
from tclint.engine.report import Report
from tclint.report.render import Style, render


def with_inputs(model: Any, inputs: Any) -> Any:
    """A model, or what a callable builds, with inputs that were handed over as objects.

    Raises:
        UsageError: it is none of these.
    """
    from torch import nn

    from tclint.graph.ops import Graph
    from tclint.tracing import object_names
    from tclint.tracing.worker.objects import Captured, place_of

    if is_path(model):
        raise UsageError(
            "inputs= goes with a model or a callable; of a named target, input= gives their shapes."
        )
    if isinstance(model, Graph):
        raise UsageError("A graph has its inputs already: give inputs= to tclint.trace.")
    if not (isinstance(model, nn.Module) or callable(model)):
        raise UsageError("inputs= goes with one model, or one callable that builds one.")
    name = next(iter(object_names([model])))
    given = inputs if isinstance(inputs, (tuple, dict)) else (inputs,)
    return Captured(model, given, name, place_of(model))


def print_report(report: Report, end: str = "") -> None:
    """The text report on standard error, which belongs to no program's output."""
    style = Style.of_stream(sys.stderr)
    print(render(report, "text", style), end=end, file=sys.stderr, flush=True)


def warn(error: Exception, what: str) -> None:
    """A warning that something was not linted; the user's run goes on."""
    text = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
    warnings.warn(f"tclint did not lint {what}: {text}", stacklevel=3)
