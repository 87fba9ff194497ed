"""`assert_ready` in a team's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tclint.core.errors import UsageError


def net(width: int = 4096) -> nn.Module:
    return nn.Sequential(nn.Linear(1024, width), nn.ReLU(), nn.Linear(width, 1024))


@pytest.fixture(scope="module")
def batch() -> torch.Tensor:
    return torch.empty(4096, 1024)


def test_a_model_that_holds_gives_its_report(
    assert_ready: Callable[..., object], batch: torch.Tensor, request: pytest.FixtureRequest
) -> None:
    report = assert_ready(net(), batch, gpu="a100", min_readiness=1, max_step_time_us=1e6)
    (entry,) = report.entries  # type: ignore[attr-defined]
    recorded = dict(request.node.user_properties)
    metrics = entry.metrics["a100-sxm4-80gb"]
    assert recorded["Sequential step_time_us a100-sxm4-80gb"] == metrics.step_time_us
    assert recorded["Sequential readiness_percent a100-sxm4-80gb"] == metrics.readiness_percent


def test_one_that_does_not_fails_with_figures_and_findings(
    assert_ready: Callable[..., object], batch: torch.Tensor
) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_ready(lambda: net(4001), batch, gpu=["a100", "h100"], min_readiness=101, max_step_time_us=1)
    said = str(failure.value)
    assert said.count("and may take 1.00 us") == 2, "on both GPUs"
    assert said.count("not 101 %") == 2
    assert "DIM001" in said


@pytest.mark.tclint(gpu="h100", min_readiness=101)
class TestMarked:
    @pytest.mark.tclint(min_readiness=1)
    def test_the_nearer_marker_wins(self, assert_ready: Callable[..., object], batch: torch.Tensor) -> None:
        report = assert_ready(net(), batch)
        assert list(report.entries[0].metrics) == ["h100-sxm5-80gb"]  # type: ignore[attr-defined]

    def test_the_call_wins_over_both(self, assert_ready: Callable[..., object], batch: torch.Tensor) -> None:
        assert_ready(net(), batch, min_readiness=1)
        with pytest.raises(AssertionError, match="not 101 %"):
            assert_ready(net(), batch)


def test_what_cannot_be_linted_fails_and_wrong_calls_are_usage_errors(
    assert_ready: Callable[..., object], batch: torch.Tensor
) -> None:
    with pytest.raises(AssertionError, match="Sequential"):
        assert_ready(net(), torch.empty(3, 7), min_readiness=1)
    with pytest.raises(UsageError, match="needs min_readiness="):
        assert_ready(net(), batch)
    with pytest.raises(UsageError, match="There is no option 'gpuu'"):
        assert_ready(net(), batch, min_readiness=1, gpuu="a100")


def test_pytest_runs_without_it_import_no_torch_and_know_the_marker(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\nimport pytest\n\n\n@pytest.mark.tclint(gpu='a100')\ndef test_nothing():\n"
        "    heavy = {'torch', 'libcst', 'numpy', 'click'}\n"
        "    assert not heavy & set(sys.modules)\n"
        "    assert 'tclint.integrations.pytest_plugin' in sys.modules\n"
    )
    # Plugins of other libraries import what they like.
    plugin = ("-p", "tclint.integrations.pytest_plugin")
    command = (sys.executable, "-m", "pytest", "-q", "--strict-markers", *plugin, str(tmp_path))
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
