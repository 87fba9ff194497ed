"""The measuring script on the CPU: its plumbing, every operator once, and what it writes."""

from __future__ import annotations

import contextlib
import csv
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tclint.cost.gpu import all_gpus

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import measure  # noqa: E402
import measure_cases  # noqa: E402
import measurements  # noqa: E402
from measure_clock import MOST_SETS, SLICE_US, CpuClock, CudaClock, buffer_sets  # noqa: E402

SWITCHES = (
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
)


def run(folder: Path, *options: str) -> int:
    """The command's exit code; torch's switches stay as they are."""
    before = [getattr(owner, name) for owner, name in SWITCHES]
    try:
        return measure.main(["--output", str(folder), *options])
    finally:
        for (owner, name), value in zip(SWITCHES, before, strict=True):
            setattr(owner, name, value)


def rows(folder: Path) -> list[dict[str, str]]:
    found = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as stream:
            found += list(csv.DictReader(stream))
    return found


def test_an_interrupted_run_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--device", "cpu", "--kind", "vector", "--kind", "attention", "--limit", "6")
    assert run(tmp_path, *options) == 0
    before = rows(tmp_path)
    capsys.readouterr()
    run(tmp_path, *options)
    after = rows(tmp_path)
    assert 1 <= len(before) <= 6
    assert len(after) > len(before)
    keys = [tuple(v for k, v in row.items() if k not in ("time_us", "launch")) for row in after]
    assert len(set(keys)) == len(keys)
    assert "calibrate nothing" in capsys.readouterr().err


def test_rows_say_that_the_cpu_made_them_and_are_of_no_gpu(tmp_path: Path) -> None:
    run(tmp_path, "--device", "cpu", "--kind", "vector", "--limit", "2")
    for row in rows(tmp_path):
        assert row["device"] == "cpu"
        assert row["torch"] == torch.__version__
        assert row["gpu"] not in {gpu.id for gpu in all_gpus()}
        assert float(row["time_us"]) > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 2
    assert "--device cpu" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def one_of_each() -> dict[tuple[str, str, str], Any]:
    """The smallest case of every operator in fp32, and of every kind in bf16."""
    found: dict[tuple[str, str, str], Any] = {}
    for case in measure_cases.all_cases(measure_cases.KINDS, 1, 16):
        what = str(case.row.get("op") or case.row.get("direction") or case.row.get("causal"))
        layout = "".join(str(case.row.get(name, "")) for name in ("layout", "transpose_a", "transpose_b"))
        if case.row["dtype"] != ("bf16" if case.kind == "attention" else "fp32"):
            continue
        key = (case.kind, what, layout)
        if key not in found or case.bytes < found[key].bytes:
            found[key] = case
    return found


@pytest.fixture(scope="module")
def cases() -> dict[tuple[str, str, str], Any]:
    return one_of_each()


def test_every_operator_runs_and_has_the_shape_that_its_row_says(cases: Any) -> None:
    assert {kind for kind, _, _ in cases} == set(measure_cases.KINDS)
    for (kind, _, _), case in cases.items():
        with torch.no_grad():
            result = case.call(case.build(torch.device("cpu")))
        if kind == "gemm":
            assert tuple(result.shape[-2:]) == (case.row["m"], case.row["n"]), case.row
        if kind == "conv" and case.row["direction"] == "fwd":
            assert result.shape[1] == case.row["k"]
        # One channel lies alike in both formats.
        if kind == "conv" and case.row["direction"] == "fwd" and case.row["c"] > 1:
            assert result.is_contiguous(
                memory_format=torch.channels_last if case.row["layout"] == "nhwc" else torch.contiguous_format
            )


def test_layouts_of_products_are_those_of_the_row(cases: Any) -> None:
    for (kind, _, _), case in cases.items():
        if kind == "gemm" and case.row["batch"] == 1:
            a, b = case.build(torch.device("cpu"))
            assert a.stride(0) == (1 if case.row["transpose_a"] else case.row["k"])
            assert b.stride(1) == (case.row["k"] if case.row["transpose_b"] else 1)


def test_the_accuracy_benchmark_reads_what_is_written(tmp_path: Path, cases: Any) -> None:
    for (kind, _, _), case in cases.items():
        results = measure.Results(tmp_path / f"{kind}.csv", kind)
        results.add("a100-sxm4-80gb", case, 12.5, "graph", {"device": "cuda"})
    found = list(measurements.read_folder(tmp_path))
    unread = [item for item in found if isinstance(item, measurements.Unhandled)]
    assert not unread, [item.reason for item in unread]
    assert sum(len(item) for item in found) == len(cases)


def test_rotating_buffers_exceed_the_cache_within_reason() -> None:
    assert buffer_sets(10**6, 40 * 2**20) * 10**6 > 2 * 40 * 2**20
    assert buffer_sets(10**9, 40 * 2**20) == 1
    assert buffer_sets(1, 40 * 2**20) == MOST_SETS


def test_the_clock_calls_and_takes_the_median() -> None:
    seen: list[int] = []
    time_us, how = CpuClock().time_us(seen.append, [1, 2])
    assert how == "host"
    assert time_us >= 0
    assert set(seen) == {1, 2}


class FakeCuda:
    """As much of torch.cuda as the clock uses; calls take `call_ms`, and graphs play back what they saw."""

    OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})

    def __init__(self, capture: Callable[[], None] = lambda: None) -> None:
        self.now_ms = 0.0
        self.capture = capture
        self.calls = 0
        self.recorded = 0

    def advance(self, calls: int) -> None:
        self.calls += calls
        self.now_ms += 0.02 * calls

    def Stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda _: None)

    def current_stream(self) -> Any:
        return self.Stream()

    def stream(self, _: Any) -> Any:
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        pass

    def Event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        event = SimpleNamespace(at=0.0)
        event.record = lambda: setattr(event, "at", self.now_ms)
        event.elapsed_time = lambda end: end.at - event.at
        return event

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(replay=lambda: self.advance(self.recorded))

    @contextlib.contextmanager
    def graph(self, _: Any) -> Iterator[None]:
        before = self.calls
        self.capture()
        yield
        self.recorded = self.calls - before


def cuda_clock(fake: FakeCuda) -> CudaClock:
    clock = CudaClock.__new__(CudaClock)
    clock.torch = SimpleNamespace(cuda=fake)
    clock.warm_up_s = 0.0
    return clock


def test_captured_calls_are_timed_one_by_one_and_their_results_rotate() -> None:
    fake = FakeCuda()
    alive: list[weakref.ref[Any]] = []
    most = 0

    class Result:
        pass

    def call(_: Any) -> Result:
        nonlocal most
        fake.advance(1)
        result = Result()
        alive.append(weakref.ref(result))
        most = max(most, sum(ref() is not None for ref in alive))
        return result

    time_us, how = cuda_clock(fake).time_us(call, [1, 2, 3])
    assert how == "graph"
    assert time_us == pytest.approx(20.0)
    assert fake.recorded % 3 == 0
    assert fake.recorded * 20.0 >= SLICE_US
    assert most == 3


def test_what_cannot_be_captured_is_timed_on_the_stream() -> None:
    def refuse() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    fake = FakeCuda(refuse)
    time_us, how = cuda_clock(fake).time_us(lambda _: fake.advance(1), [1, 2])
    assert how == "stream"
    assert time_us == pytest.approx(20.0)


def test_memory_that_runs_out_while_capturing_ends_the_case() -> None:
    fake = FakeCuda()

    def exhaust() -> None:
        raise fake.OutOfMemoryError("CUDA out of memory")

    fake.capture = exhaust
    with pytest.raises(fake.OutOfMemoryError):
        cuda_clock(fake).time_us(lambda _: fake.advance(1), [1])


def test_a_line_that_a_killed_run_left_half_written_is_measured_again(tmp_path: Path, cases: Any) -> None:
    case = next(case for (kind, _, _), case in cases.items() if kind == "gemm")
    path = tmp_path / "gemm.csv"
    measure.Results(path, "gemm").add("t4", case, 12.5, "graph", {"device": "cuda"})
    whole = path.read_text()
    path.write_text(whole + "t4,fp32,linear,1,6")
    results = measure.Results(path, "gemm")
    assert results.done == {results.key("t4", case)}
    assert path.read_text() == whole


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("Tesla T4", "t4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA RTX A9999 Ada", "rtx-a9999-ada"),
    ],
)
def test_gpus_are_named_as_tclint_names_them(name: str, wanted: str) -> None:
    assert measure.gpu_id(name) == wanted
