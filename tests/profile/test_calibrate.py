"""`tclint profile --calibrate FILE`: factors that help shapes that they were not fitted on, and their use."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from profile_support import FP16_GEMM, SGEMM, TraceWriter

from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.cost.gpu import load_gpu
from tclint.cost.gpu.factors import load_factors
from tclint.cost.kernels.pricing import price_works
from tclint.graph.lowering.work import Gemm, Traffic
from tclint.profile.calibrate import Sample, error_percent, fit

SIZES = [(256 * rows, 1024, 256 * depth) for rows in (8, 16, 24, 32) for depth in (4, 8, 12)]
GPU = load_gpu("a100")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--isolated"])


def product(m: int, n: int, k: int) -> Gemm:
    return Gemm(m, n, k, "float16", 1, "k", "n", "n")


def predicted_us(work: Gemm | Traffic, calibration: str = "") -> float:
    (price,) = price_works([work], load_gpu("a100", calibration), "fp16")
    assert price is not None
    return price.time_us


def trace(path: Path, slowness: Callable[[int], float], count: int = len(SIZES)) -> str:
    """Products in float16 that take so many times as long as tclint predicts."""
    writer = TraceWriter()
    for number, (m, n, k) in enumerate(SIZES[:count]):
        time_us = slowness(number) * predicted_us(product(m, n, k))
        for _ in range(2):
            strides = [[k, 1], [n, 1]]
            writer.op("aten::mm", [(FP16_GEMM, time_us)], dims=[[m, k], [k, n]], **{"Input Strides": strides})
    return writer.write(path)


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A calibration of a GPU on which products take 1.5 times as long, a bit more or less."""
    path = tmp_path / "mine.json"
    result = run(
        "profile", trace(tmp_path / "t.json", lambda n: 1.5 + 0.01 * (n % 3)), "--calibrate", str(path)
    )
    assert result.exit_code == 0, result.output
    assert "calibration: gemm half x1.50 (held-out error 34 -> 0.88 %), 12 shapes" in result.stderr
    return path


def test_a_factor_has_what_it_rests_on(slow: Path) -> None:
    (factor,) = load_factors(str(slow))
    assert (factor.gpu, factor.kind, factor.precision) == ("a100-sxm4-80gb", "gemm", "half")
    assert factor.factor == pytest.approx(1.51, abs=0.0101)
    assert factor.shapes == len(SIZES)
    assert factor.error_before_percent == pytest.approx(33.8, abs=1)
    assert factor.error_percent < 1
    assert factor.fitted_on == "NVIDIA A100-SXM4-80GB, t.json"


def test_times_of_that_kind_gpu_and_precision_are_multiplied(slow: Path) -> None:
    work, copy = product(4096, 4096, 4096), Traffic("copy", "clone", 2**20, 2**20, dtype="float16")
    (factor,) = load_factors(str(slow))
    (plain,) = price_works([work], GPU, "fp16")
    (scaled,) = price_works([work], load_gpu("a100", str(slow)), "fp16")
    assert plain is not None
    assert scaled is not None
    assert scaled.time_us == pytest.approx(factor.factor * plain.time_us)
    assert sum(us for _, us in scaled.parts_us) == pytest.approx(
        factor.factor * sum(us for _, us in plain.parts_us)
    )
    assert scaled.uncertainty_percent == factor.error_percent
    assert predicted_us(copy, str(slow)) == predicted_us(copy)
    assert predicted_us(replace(work, dtype="float32"), str(slow)) == predicted_us(
        replace(work, dtype="float32")
    )
    other = [price_works([work], load_gpu("h100", file), "fp16")[0] for file in ("", str(slow))]
    assert other[0] == other[1]


def test_every_report_says_so(slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(512, 1024), ()\n")
    Path("tclint.toml").write_text(f'[tool.tclint]\ncalibration = "{slow.name}"\n')
    said = "times on a100-sxm4-80gb are multiplied by the factors of mine.json: gemm half x1.5"
    arguments = [
        "net.py:build",
        "--gpu",
        "a100",
        "--input",
        "64,512",
        "--exit-zero",
        "--config",
        "tclint.toml",
    ]
    outputs = [f"--output={name}={name}.out" for name in ("json", "jsonl", "markdown", "html", "sarif")]
    result = CliRunner().invoke(cli, [*arguments, *outputs])
    assert result.exit_code == 0, result.output
    assert said in " ".join(result.stdout.split())
    for name in ("json", "jsonl", "markdown", "html"):
        assert "multiplied by the factors of" in Path(f"{name}.out").read_text(), name
    metrics = json.loads(Path("json.out").read_text())["entries"][0]["metrics"]["a100-sxm4-80gb"]
    plain = json.loads(run(*arguments[:-2], "--format", "json").stdout)["entries"][0]
    assert metrics["step_time_us"] > plain["metrics"]["a100-sxm4-80gb"]["step_time_us"]
    assert "factors of" not in json.dumps(plain)


def test_sweeps_and_explanations_say_so(slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("from torch import nn\ndef build(width):\n    return nn.Linear(512, width)\n")
    arguments = ["net.py:build", "--arg", "width=512,1024", "--gpu", "a100,v100", "--input", "64,512"]
    found = run("sweep", *arguments, "--calibration", str(slow))
    assert found.exit_code == 0, found.output
    explained = run("explain-cost", "net.py:build", "--op", "#0", "--arg", "width=512", *arguments[3:],
                    "--calibration", str(slow))  # fmt: skip
    assert "multiplied by the factors of mine.json" in explained.stdout, explained.output
    assert (
        found.stdout.count("assumed: times on a100-sxm4-80gb are multiplied by the factors of mine.json") == 1
    )


def test_the_list_of_gpus_has_it(slow: Path) -> None:
    text = run("gpus", "-v", "--calibration", str(slow)).stdout
    assert text.count("your calibration: gemm half x1.5") == 1
    assert "your calibration" not in run("gpus", "-v").stdout


def test_a_factor_that_does_not_help_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    slowness = lambda number: (0.5, 2.0, 1.0)[number % 3]  # noqa: E731
    result = run("profile", trace(tmp_path / "t.json", slowness), "--calibrate", str(path))
    assert result.exit_code == 2
    assert "gemm half: refused: x" in result.stderr
    assert "does not lower the error on the others" in result.stderr
    assert "was not written" in result.stderr.splitlines()[-1]
    assert not path.exists()
    assert "kernel time by use of Tensor Cores" in result.stdout


def test_few_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    result = run("profile", trace(tmp_path / "t.json", lambda _: 2.0, count=5), "--calibrate", str(path))
    assert result.exit_code == 2
    assert "gemm half: refused: 5 shapes of 8 us or more, and 6 are needed" in result.stderr


def test_the_shown_error_is_of_shapes_that_were_not_fitted() -> None:
    """A shape that changes the error does not change the factor, and the other way round."""
    samples = [Sample(("gemm", "half"), number, 100.0 + number, 50.0) for number in range(10)]
    (plain,) = fit(samples, GPU, "")
    assert plain.factor is not None
    fitted = held_out = 0
    for number in range(10):
        changed = [replace(one, measured_us=60.0) if one.shape == number else one for one in samples]
        (other,) = fit(changed, GPU, "")
        assert other.factor is not None
        moves_factor = other.factor.factor != plain.factor.factor
        moves_error = other.factor.error_before_percent != plain.factor.error_before_percent
        assert not (moves_factor and moves_error)
        fitted += not moves_error
        held_out += moves_error
    assert (fitted, held_out) == (5, 5)


def test_the_factor_has_the_least_mean_error() -> None:
    samples = [
        Sample(("gemm", "half"), number, us, 10.0) for number, us in enumerate([9, 11, 12, 30, 14, 13] * 2)
    ]
    (found,) = fit(samples, GPU, "")
    assert found.factor is not None
    seen = {one.shape: one.measured_us / one.predicted_us for one in samples}
    ratios = [seen[number] for number in range(12)]
    # Both halves are drawn from the same six values, so the best of all factors is among them.
    assert found.factor.factor in ratios


def test_factors_of_other_gpus_stay(slow: Path, tmp_path: Path) -> None:
    document = json.loads(slow.read_text())
    document["factors"].append({**document["factors"][0], "gpu": "h100-sxm5-80gb", "factor": 0.5})
    slow.write_text(json.dumps(document))
    result = run("profile", trace(tmp_path / "t2.json", lambda n: 2.0 + 0.01 * n), "--calibrate", str(slow))
    assert result.exit_code == 0, result.output
    found = {factor.gpu: factor.factor for factor in load_factors(str(slow))}
    assert found["h100-sxm5-80gb"] == 0.5
    assert 2.0 <= found["a100-sxm4-80gb"] <= 2.12


def _without(document: dict[str, Any]) -> dict[str, Any]:
    del document["factors"][0]["shapes"]
    return document


@pytest.mark.parametrize(
    "change",
    [
        lambda document: "# Notes",
        lambda document: "",
        lambda document: json.dumps(_without(document)),
        lambda document: json.dumps({**document, "factors": [{**document["factors"][0], "factor": 0}]}),
        lambda document: json.dumps({**document, "factors": [{**document["factors"][0], "factor": "2"}]}),
        lambda document: json.dumps({**document, "factors": 3}),
    ],
)
def test_a_file_that_holds_no_calibration(slow: Path, change: Callable[[Any], str]) -> None:
    slow.write_text(change(json.loads(slow.read_text())))
    result = run("gpus", "--calibration", str(slow))
    assert result.exit_code == 2
    assert "holds no calibration" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="Cannot read the calibration 'nowhere"):
        load_gpu("a100", "nowhere.json")


def test_a_calibration_of_another_version_is_not_used_but_replaced(slow: Path, tmp_path: Path) -> None:
    document = json.loads(slow.read_text()) | {"tclint": "0.0.1"}
    slow.write_text(json.dumps(document))
    result = run("gpus", "--calibration", str(slow))
    assert result.exit_code == 2
    assert "tclint 0.0.1" in result.stderr
    again = run("profile", trace(tmp_path / "t2.json", lambda n: 2.0 + 0.01 * n), "--calibrate", str(slow))
    assert again.exit_code == 0, again.output


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("[1, 2]")
    result = run("profile", trace(tmp_path / "t.json", lambda _: 2.0), "--calibrate", str(path))
    assert result.exit_code == 2
    assert path.read_text() == "[1, 2]"
    assert result.stdout == ""


def test_errors_are_of_predictions() -> None:
    assert error_percent([2.0, 0.5], 1.0) == pytest.approx((50 + 100) / 2)


def test_a_trace_without_sizes(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::mm", [(SGEMM, 20.0)])
    path = tmp_path / "mine.json"
    result = run("profile", writer.write(tmp_path / "t.json"), "--calibrate", str(path))
    assert result.exit_code == 2
    assert "record_shapes=True" in result.stderr
    assert not path.exists()


def test_settings_are_keys_of_scenarios() -> None:
    from tclint.cost.scenario import Scenario

    assert Scenario.of(replace(Settings(), calibration="x.json")).calibration == "x.json"
