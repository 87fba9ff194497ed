"""`tclint profile`: its formats, and folders of ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from profile_support import ADD, FP16_GEMM, SGEMM, TraceWriter

from tclint.cli.main import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["profile", *arguments])


@pytest.fixture
def trace(tmp_path: Path) -> str:
    writer = TraceWriter()
    writer.span("ProfilerStep#1", 900, 2000, "user_annotation")
    writer.op("aten::mm", [(FP16_GEMM, 600)], [[64, 1024], [1024, 512]])
    writer.op("aten::mm", [(SGEMM, 300)], [[64, 1024], [1024, 512]], "float")
    writer.op("aten::add", [(ADD, 100)], [[64, 64]])
    return writer.write(tmp_path / "trace.json")


def test_text(trace: str) -> None:
    result = run(trace)
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "on Tensor Cores 600 us 60 % 1" in lines
    assert "could run on Tensor Cores and did not 300 us 30 % 1" in lines
    assert "float32 without TF32 300 us 30 % 1" in lines
    assert "NVIDIA A100-SXM4-80GB, 1 step" in " ".join(lines)
    assert "longest operators (3 of 3)" in lines


def test_json(trace: str) -> None:
    document = json.loads(run(trace, "--format", "json").stdout)
    (found,) = document["traces"]
    assert found["gpu"] == "NVIDIA A100-SXM4-80GB"
    assert found["kernel_time_us"] == 1000
    assert found["tensor_core_time_percent"] == 60
    assert found["by_use"]["possible"]["percent"] == 30
    assert found["reasons"][0] == {
        "use": "possible", "reason": "float32 without TF32", "time_us": 300, "count": 1, "percent": 30,
    }  # fmt: skip
    assert [row["time_us"] for row in found["operators"]] == [600, 300, 100]
    assert found["observations"][0]["rules"]


def test_markdown(trace: str) -> None:
    text = run(trace, "--format", "markdown").stdout
    assert "| could run on Tensor Cores and did not | 300 us | 30 % | 1 |" in text
    assert "### Longest operators" in text


def test_html(trace: str) -> None:
    page = run(trace, "--format", "html").stdout
    assert "could run on Tensor Cores and did not" in page
    assert "<script" not in page
    assert page.count("<circle") == 2
    # 64 x 1024 x 512 in 600 us on Tensor Cores, in 300 us without them.
    assert "1 x 600 us, 0.112 TFLOP/s" in page
    assert "1 x 300 us, 0.224 TFLOP/s" in page


def test_html_of_a_gpu_without_figures_has_no_roofline(tmp_path: Path) -> None:
    writer = TraceWriter({"id": 0, "name": "NVIDIA PG509-210", "computeMajor": 8, "computeMinor": 0})
    writer.op("aten::mm", [(FP16_GEMM, 600)], [[64, 1024], [1024, 512]])
    page = run(writer.write(tmp_path / "trace.json"), "--format", "html").stdout
    assert "on Tensor Cores" in page
    assert "<svg" not in page


def test_output_to_a_file(trace: str, tmp_path: Path) -> None:
    result = run(trace, "--format", "json", "--output", str(tmp_path / "profile.json"))
    assert result.stdout == ""
    assert json.loads((tmp_path / "profile.json").read_text())["traces"]


def test_an_unknown_format(trace: str) -> None:
    result = run(trace, "--format", "jsn")
    assert result.exit_code == 2
    assert "Did you mean 'json'?" in result.stderr


def test_a_folder_has_one_trace_per_rank(tmp_path: Path) -> None:
    for rank in (1, 0):
        writer = TraceWriter()
        writer.header = {"distributedInfo": {"rank": rank}}
        writer.op("aten::mm", [(FP16_GEMM, 100 + rank)], [[64, 1024], [1024, 512]])
        writer.write(tmp_path / f"worker{1 - rank}.json.gz")
    result = run(str(tmp_path), "--format", "json")
    assert [found["rank"] for found in json.loads(result.stdout)["traces"]] == [0, 1]
    lines = run(str(tmp_path)).stdout.splitlines()
    assert lines[0].split()[0] == "rank"
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]


def test_names_of_others_cannot_steer_the_terminal(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::\x1b[31mred\nline<script>", [("kernel\x1b]0;title\x07", 100)], [[4]])
    trace = writer.write(tmp_path / "trace.json")
    for format_name in ("text", "markdown", "html"):
        text = run(trace, "--format", format_name).stdout
        assert format_name == "text" or "<script>" not in text
        assert "\x1b" not in text
        assert "red\nline" not in text


def test_no_torch_is_imported(trace: str) -> None:
    code = (
        "import sys; from tclint.profile.profile import read_profile; read_profile(sys.argv[1]); "
        "assert 'torch' not in sys.modules and 'libcst' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, trace], check=True)
