"""`tclint profile A B`: what got slower from one trace to another, by module and kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import in_process
import pytest
from profile_support import ADD, FP16_GEMM, H100, SGEMM, TraceWriter


def tclint(*arguments: str) -> in_process.Done:
    return in_process.tclint("profile", *arguments)


def written(
    path: Path, product: tuple[str, float], steps: int = 4, *, jitter_us: float = 0.0, **device: Any
) -> str:
    """A trace of a model of two layers and an optimizer; `product` is the kernel of the second layer."""
    writer = TraceWriter(device or None)
    for step in range(steps):
        writer.span(f"ProfilerStep#{step}", writer.host_us - 5, 1400, "user_annotation")
        off = jitter_us if step % 2 else -jitter_us
        for module, kernel, time_us in (("Linear_0", FP16_GEMM, 300.0 + off), ("Linear_1", *product)):
            writer.op(
                "aten::mm",
                [(kernel, time_us)],
                [[64, 1024], [1024, 512]],
                "c10::Half" if kernel == FP16_GEMM else "float",
                **{"Module Hierarchy": f"Net_0/Block_0/Inner_0/{module}"},
            )
        writer.op("aten::add", [(ADD, 50)], [[64, 64]])
        writer.host_us += 1300
        writer.gpu_us = max(writer.gpu_us, writer.host_us)
    return writer.write(path)


@pytest.fixture
def traces(tmp_path: Path) -> tuple[str, str]:
    before = written(tmp_path / "before.json", (FP16_GEMM, 300), jitter_us=10)
    return before, written(tmp_path / "after.json.gz", (SGEMM, 900), jitter_us=12)


def test_what_got_slower_is_told_by_module_and_kind(traces: tuple[str, str]) -> None:
    result = tclint(*traces)
    assert result.returncode == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "kernels 650 us 1.25 ms +600 us (+92.3 %)" in lines
    assert ".../Block_0/Inner_0/Linear_1, product 300 us 900 us +600 us (+200.0 %)" in lines
    told = lines[lines.index(".../Block_0/Inner_0/Linear_1, product 300 us 900 us +600 us (+200.0 %)") + 1]
    assert told.startswith("was on Tensor Cores, is could run on Tensor Cores and did not (float32")
    # The other layer differs by less than its steps do.
    assert not any("Linear_0" in line for line in lines)
    assert not any(line.startswith("faster") for line in lines)


def test_the_other_way_round_it_got_faster(traces: tuple[str, str]) -> None:
    stdout = tclint(*reversed(traces)).stdout
    assert "faster (1 of 1)" in stdout
    assert "slower" not in stdout


def test_json_has_every_row_and_what_is_noise(traces: tuple[str, str]) -> None:
    document = json.loads(tclint(*traces, "--format", "json").stdout)
    assert document["step"]["kernels"] == {"before_us": 650, "after_us": 1250}
    rows = {(row["module"].rpartition("/")[2], row["kind"]): row for row in document["by_module"]}
    assert rows["Linear_1", "product"]["change_us"] == 600
    assert rows["Linear_1", "product"]["after"]["use"] == "possible"
    assert not rows["Linear_1", "product"]["is_noise"]
    assert rows["Linear_0", "product"]["before"]["kernels"] == 1
    assert document["by_kind"][0]["kind"] == "product"
    assert "module" not in document["by_kind"][0]


def test_small_differences_between_noisy_steps_are_noise(tmp_path: Path) -> None:
    before = written(tmp_path / "a.json", (FP16_GEMM, 300), jitter_us=40)
    after = written(tmp_path / "b.json", (FP16_GEMM, 300), steps=5, jitter_us=40)
    rows = json.loads(tclint(before, after, "--format", "json").stdout)["by_module"]
    (first,) = [row for row in rows if row["module"].endswith("Linear_0")]
    assert first["change_us"] == pytest.approx(-8)
    assert first["is_noise"]


def test_what_cannot_be_compared_is_said(tmp_path: Path, traces: tuple[str, str]) -> None:
    other = written(tmp_path / "h100.json", (FP16_GEMM, 200), steps=2, **H100)
    stdout = tclint(traces[0], other).stdout
    assert "different GPUs: NVIDIA A100-SXM4-80GB and NVIDIA H100 80GB HBM3" in " ".join(stdout.split())
    assert "fewer than 3 steps" in stdout
    writer = TraceWriter()
    writer.op("aten::mm", [(FP16_GEMM, 600)], [[64, 1024], [1024, 512]])
    stdout = tclint(traces[0], writer.write(tmp_path / "plain.json")).stdout
    assert "marks no steps" in stdout
    assert "has no modules" in stdout
    assert "new" in stdout
    assert "gone" in stdout


def test_markdown_and_wrong_calls(traces: tuple[str, str], tmp_path: Path) -> None:
    output = tmp_path / "changes.md"
    assert tclint(*traces, "--format", "markdown", "--output", str(output)).returncode == 0
    assert "| .../Block_0/Inner_0/Linear_1, product | 300 us | 900 us |" in output.read_text()
    page = tclint(*traces, "--format", "html").stdout
    assert '<th scope="row">.../Block_0/Inner_0/Linear_1, product</th><td class="number">300 us</td>' in page
    result = tclint(*traces, "--batch", "4")
    assert result.returncode == 2
    assert "TARGET" in result.stderr
    missing = tclint(traces[0], "missing.json")
    assert missing.returncode == 2
