"""A plugin of pytest: a team's test suite holds what its models' steps are predicted to take.

pytest imports this for every run where tclint is installed, so it imports nothing until a test asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tclint.core.errors import UsageError
from tclint.core.units import percent_text, time_text
from tclint.engine.report import Report

MARKER = "tclint"
LISTED_FINDINGS = 5
_FORK_WARNING = "ignore:This process .* is multi-threaded:DeprecationWarning:tclint"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(gpu=..., min_readiness=..., max_step_time_us=..., **settings): what assert_ready holds "
        "models to in this test",
    )
    # Python warns of every fork of a process with threads, which torch has; what may hang is bound by time.
    config.addinivalue_line("filterwarnings", _FORK_WARNING)


@pytest.fixture
def assert_ready(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[..., Report]:
    """`assert_ready(model, gpu="a100", min_readiness=60, max_step_time_us=70_000)`: see `check_ready`.

    The marker `tclint` gives arguments that hold unless the call names others; those nearer to the test win.
    Step time and readiness become properties of the test, which JUnit reports show.
    """
    marked: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        marked.update(marker.kwargs)

    def run(model: Any, inputs: Any = None, **arguments: Any) -> Report:
        __tracebackhide__ = True
        return check_ready(model, inputs, record=record_property, **{**marked, **arguments})

    return run


def check_ready(
    model: Any,
    inputs: Any = None,
    *,
    min_readiness: float | None = None,
    max_step_time_us: float | None = None,
    record: Callable[[str, object], None] = lambda *_: None,
    **settings: Any,
) -> Report:
    """Lint a model, and fail where it is less ready for Tensor Cores, or slower, than it may be.

    Args:
        model: an nn.Module, which stays as it is; a callable that builds one; a graph of `tclint.trace`; or
            'path/file.py:callable'.
        inputs: of the model's forward, a tensor or a tuple or dict of them; None: as for `tclint.check`.
        min_readiness: in percent of the step, on every GPU.
        max_step_time_us: in microseconds, on every GPU.
        record: called with a name and a value for every figure.
        settings: keys of `[tool.tclint]`, as gpu="h100", precision="bf16", mode="infer".

    Raises:
        AssertionError: it does not hold; the message has the figures and the findings that gain most.
        UsageError: a setting is wrong, or nothing is asked of the model.
    """
    __tracebackhide__ = True
    from tclint.config.keywords import session_settings
    from tclint.engine.check import check
    from tclint.integrations.session import with_inputs

    if min_readiness is None and max_step_time_us is None:
        raise UsageError("assert_ready needs min_readiness=, max_step_time_us=, or both.")
    if inputs is not None:
        model = with_inputs(model, inputs)
    report = check(model, session_settings(settings))
    problems = [error.message for error in report.errors]
    for entry in report.entries:
        for gpu, metrics in entry.metrics.items():
            step_us, ready = metrics.step_time_us, metrics.readiness_percent
            record(f"{entry.target} step_time_us {gpu}", step_us)
            record(f"{entry.target} readiness_percent {gpu}", ready)
            # Figures that are not known hold nothing: NaN is in no order.
            if max_step_time_us is not None and not step_us <= max_step_time_us:
                limit = time_text(max_step_time_us)
                problems.append(f"{entry.target} takes {time_text(step_us)} on {gpu}, and may take {limit}")
            if min_readiness is not None and not ready >= min_readiness:
                least = percent_text(min_readiness)
                problems.append(f"{entry.target} is {percent_text(ready)} ready on {gpu}, not {least}")
    if problems or not report.entries:
        raise AssertionError("\n".join([*problems, *_findings(report)]))
    return report


def _findings(report: Report) -> list[str]:
    from tclint.report.formats.concise import finding_line

    listed = report.findings[:LISTED_FINDINGS]
    left = len(report.findings) - len(listed)
    return [*map(finding_line, listed), *([f"and {left} more findings"] if left else [])]
