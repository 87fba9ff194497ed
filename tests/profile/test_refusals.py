"""Files that are no trace of an NVIDIA GPU: one clear sentence and exit code 2 each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from profile_support import ADD, TraceWriter

from tclint.cli.main import cli
from tclint.core.errors import UsageError
from tclint.profile.reader import read_trace, trace_files


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_trace(str(path))
    message = str(caught.value)
    assert path.name in message
    assert "\n" not in message
    return message


@pytest.fixture
def text() -> str:
    writer = TraceWriter()
    for _ in range(5):
        writer.op("aten::add", [(ADD, 2)])
    return json.dumps(writer.document())


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("")
    assert "is empty" in refusal(path)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off(tmp_path: Path, text: str, share: float) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text[: int(len(text) * share)])
    assert "cut off" in refusal(path)


def test_a_packed_file_that_was_cut_off(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json.gz"
    packed = gzip.compress(text.encode())
    path.write_bytes(packed[: len(packed) // 2])
    assert "cut off" in refusal(path)


@pytest.mark.parametrize(
    "content", ["# Notes", "{key: 1}", '{"traceEvents": [{"ph": oops' + "x" * 99 + "}]}"]
)
def test_a_file_that_is_not_json(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    assert "is not JSON" in refusal(path)


def test_binary_data(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(bytes(range(256)) * 10)
    assert "is not JSON" in refusal(path)


def test_json_that_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"schema_version": "1.0", "findings": []}')
    assert "no 'traceEvents'" in refusal(path)


def test_a_trace_of_a_cpu(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::add")
    path = tmp_path / "trace.json"
    writer.write(path)
    assert "no GPU kernel" in refusal(path)


def test_a_trace_of_an_amd_gpu_by_its_runtime(tmp_path: Path) -> None:
    writer = TraceWriter({"id": 0, "name": ""})
    writer.op("aten::mm", [("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", 5)])
    for event in writer.events:
        if event["cat"] == "cuda_runtime":
            event["name"] = "hipLaunchKernel"
    path = tmp_path / "trace.json"
    writer.write(path)
    assert "AMD" in refusal(path)


@pytest.mark.parametrize(
    ("device", "vendor"),
    [("AMD Instinct MI300X", "an AMD GPU"), ("Intel(R) Data Center GPU Max 1550", "an Intel GPU")],
)
def test_a_trace_of_another_vendor_by_the_name_of_its_gpu(tmp_path: Path, device: str, vendor: str) -> None:
    writer = TraceWriter({"id": 0, "name": device})
    writer.op("aten::mm", [("gemm_kernel", 5)])
    path = tmp_path / "trace.json"
    writer.write(path)
    assert vendor in refusal(path)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_file_that_is_too_large(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    monkeypatch.setattr("tclint.profile.events.MAX_BYTES", len(text) - 1)
    assert "larger than" in refusal(path)


def test_a_file_of_four_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with path.open("wb") as file:
        file.truncate(4 * 2**30)  # sparse: it takes no space
    assert "larger than 2.00 GiB" in refusal(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "export_chrome_trace writes one" in refusal(tmp_path / "trace.json")


def test_a_folder_without_traces(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("none")
    with pytest.raises(UsageError, match="holds no trace"):
        trace_files(str(tmp_path))


def test_the_command_says_one_sentence_and_exits_with_2(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("")
    result = CliRunner().invoke(cli, ["profile", str(path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: The trace ")
    assert result.stderr.count("\n") == 1
