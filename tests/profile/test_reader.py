"""Traces read: what launched each kernel, in which forward operator, module and step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from profile_support import ADD, FP16_GEMM, H100, TraceWriter

from tclint.profile.profile import read_profile
from tclint.profile.reader import read_trace
from tclint.profile.trace import Kernel, Trace


def read(writer: TraceWriter, tmp_path: Path) -> Trace:
    return read_trace(writer.write(tmp_path / "trace.json"))


def operator_name(kernel: Kernel) -> str | None:
    return None if kernel.operator is None else kernel.operator.name


def test_a_kernel_belongs_to_the_innermost_operator_around_its_launch(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("aten::linear", 1000, 100)
    writer.span("aten::t", 1001, 5)
    writer.span("aten::addmm", 1010, 80, **{"Input Dims": [[8], [4, 16], [16, 8]]})
    writer.launch(FP16_GEMM, 1020, 1030, 7)
    writer.launch(ADD, 1095, 1100, 2)
    trace = read(writer, tmp_path)
    assert [operator_name(kernel) for kernel in trace.kernels] == ["aten::addmm", "aten::linear"]
    first = trace.kernels[0]
    assert first.operator is not None
    assert [one.name for one in first.operator.chain()] == ["aten::addmm", "aten::linear"]
    assert first.operator.dims == ((8,), (4, 16), (16, 8))
    assert (first.launch_us, first.start_us, first.time_us) == (1020, 1030, 7)


def test_operators_of_another_thread_do_not_count(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("aten::mm", 1000, 100, tid=1)
    writer.launch(FP16_GEMM, 1050, 1060, 7, tid=2)
    assert operator_name(read(writer, tmp_path).kernels[0]) is None


def test_operators_that_touch_in_whole_microseconds_are_neighbours(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("aten::mul", 1000, 10)
    writer.span("aten::add", 1010, 10)
    writer.launch(ADD, 1010, 1030, 7)
    trace = read(writer, tmp_path)
    assert operator_name(trace.kernels[0]) == "aten::add"
    assert all(operator.parent is None for operator in trace.operators)


def test_a_launch_that_the_trace_lacks_is_found_by_the_external_id(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("aten::mm", 1000, 100, **{"External id": 42})
    writer.activity(FP16_GEMM, 1060, 7, correlation=9, **{"External id": 42})
    kernel = read(writer, tmp_path).kernels[0]
    assert operator_name(kernel) == "aten::mm"
    assert kernel.launch_us is None


def test_an_external_id_that_repeats_the_correlation_is_no_operators(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("aten::mm", 1000, 100, **{"External id": 42})
    writer.activity(FP16_GEMM, 1060, 7, correlation=42, **{"External id": 42})
    assert operator_name(read(writer, tmp_path).kernels[0]) is None


def test_backward_operators_know_their_forward_operator(tmp_path: Path) -> None:
    writer = TraceWriter()
    forward = {"Fwd thread id": 0}
    writer.span("aten::linear", 1000, 100, **forward, **{"Sequence number": 7})
    writer.span("aten::t", 1001, 5, **forward, **{"Sequence number": 7})
    writer.span("aten::addmm", 1010, 50, **forward, **{"Sequence number": 8})
    writer.span(
        "autograd::engine::evaluate_function: AddmmBackward0", 2000, 100, tid=2,
        **{"Sequence number": 8, "Fwd thread id": 1},
    )  # fmt: skip
    writer.span("aten::mm", 2010, 50, tid=2)
    writer.launch(FP16_GEMM, 2020, 2050, 7, tid=2)
    operator = read(writer, tmp_path).kernels[0].operator
    assert operator is not None
    assert operator.name == "aten::mm"
    assert operator.is_backward
    assert operator.origin.name == "aten::addmm"


def test_what_autograd_does_between_nodes_is_backward_work(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("aten::mm", 1000, 50, **{"Sequence number": 1, "Fwd thread id": 0})
    writer.span("aten::add", 1100, 50)
    writer.launch(ADD, 1110, 1150, 7)
    node = {"Sequence number": 1, "Fwd thread id": 1}
    writer.span("autograd::engine::evaluate_function: MmBackward0", 2000, 50, tid=2, **node)
    writer.span("aten::add", 2060, 20, tid=2)  # two gradients of one tensor
    writer.launch(ADD, 2065, 2100, 7, tid=2)
    forward, backward = (kernel.operator for kernel in read(writer, tmp_path).kernels)
    assert forward is not None
    assert not forward.is_backward
    assert backward is not None
    assert backward.is_backward


def test_of_operators_with_one_sequence_number_the_last_made_the_node(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("aten::linear", 1000, 100, **{"Sequence number": 7})
    writer.span("aten::t", 1001, 5, **{"Sequence number": 7})
    backward = {"Sequence number": 7, "Fwd thread id": 1}
    writer.span("autograd::engine::evaluate_function: TBackward0", 2000, 9, tid=2, **backward)
    writer.launch(ADD, 2001, 2050, 7, tid=2)
    operator = read(writer, tmp_path).kernels[0].operator
    assert operator is not None
    assert operator.origin.name == "aten::t"


def test_modules_and_the_programs_innermost_function(tmp_path: Path) -> None:
    writer = TraceWriter(H100)
    frames = [
        "train.py(3): main",
        "nn.Module: Net_0",
        "net.py(10): forward",
        "nn.Module: Linear_1",
        "torch/nn/modules/linear.py(124): forward",
        "<built-in function linear>",
    ]
    for depth, name in enumerate(frames):
        writer.span(name, 1000 + depth, 100 - 2 * depth, "python_function")
    writer.span("aten::linear", 1020, 20)
    writer.launch(FP16_GEMM, 1025, 1060, 7)
    writer.span("aten::add", 2000, 20)
    writer.launch(ADD, 2005, 2060, 7)
    linear, add = (kernel.operator for kernel in read(writer, tmp_path).kernels)
    assert linear is not None
    assert (linear.module, linear.line) == ("Net_0/Linear_1", "net.py(10): forward")
    assert add is not None
    assert (add.module, add.line) == ("", "")


def test_call_stacks_of_older_traces(tmp_path: Path) -> None:
    writer = TraceWriter()
    stack = "/lib/python3.7/site-packages/torch/nn/functional.py(9): relu;net.py(46): forward;run.py(2): go"
    writer.span("aten::relu", 1000, 20, **{"Call stack": stack})
    writer.launch(ADD, 1005, 1060, 7)
    operator = read(writer, tmp_path).kernels[0].operator
    assert operator is not None
    assert operator.line == "net.py(46): forward"


def test_steps_are_those_that_launched_the_kernel(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.span("ProfilerStep#4", 1000, 100, "user_annotation")
    writer.span("ProfilerStep#5", 1100, 100, "user_annotation")
    writer.launch(ADD, 1050, 1150, 7)
    writer.launch(ADD, 1120, 1300, 7)
    trace = read(writer, tmp_path)
    assert [kernel.step for kernel in trace.kernels] == [4, 5]
    assert sorted(trace.steps) == [4, 5]


def test_the_categories_and_text_ids_of_torch_1_8(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.events = [
        {"ph": "X", "cat": "Operator", "name": "aten::conv2d", "pid": 1, "tid": "1", "ts": 10, "dur": 20},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "1", "ts": 15, "dur": 2,
         "args": {"correlation": 3}},
        {"ph": "X", "cat": "Kernel", "name": "volta_sgemm_128x64_nn", "pid": 0, "tid": "stream 7", "ts": 40,
         "dur": 5, "args": {"device": 0, "stream": 7, "correlation": 3}},
        {"ph": "X", "cat": "Memset", "name": "Memset", "pid": 0, "tid": "stream 7", "ts": 50, "dur": 1,
         "args": {"device": 0, "stream": 7, "bytes": 128}},
        {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": "stream 7", "ts": 60, "dur": 1,
         "args": {"device": 0, "stream": 7, "bytes": 64}},
    ]  # fmt: skip
    trace = read(writer, tmp_path)
    assert [kernel.activity for kernel in trace.kernels] == ["kernel", "memset", "copy"]
    assert operator_name(trace.kernels[0]) == "aten::conv2d"
    assert trace.kernel_time_us == 5


def test_the_device_and_the_rank(tmp_path: Path) -> None:
    writer = TraceWriter(H100)
    writer.header = {"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}}
    writer.op("aten::add", [(ADD, 1)])
    trace = read(writer, tmp_path)
    assert trace.device.name == "NVIDIA H100 80GB HBM3"
    assert trace.device.compute_capability == (9, 0)
    assert trace.rank == 3


@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_events_may_lie_across_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("tclint.profile.events._CHUNK_BYTES", chunk)
    writer = TraceWriter()
    writer.header = {"traceName": 'quote " [ } \\ é', "with_flops": 123456}
    for _ in range(20):
        writer.op("aten::µ\u00fcbung", [(ADD, 1.25)])
    document = writer.document()
    # Newer versions write keys behind the events, with numbers at the very end.
    document = {"traceEvents": document.pop("traceEvents"), **document, "trace_id": 12345}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    trace = read_trace(str(path))
    assert len(trace.kernels) == 20
    assert trace.kernel_time_us == 25
    assert operator_name(trace.kernels[0]) == "aten::µ\u00fcbung"


def test_a_bare_list_of_events_and_a_packed_file(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::add", [(ADD, 3)])
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(writer.events))
    assert read_trace(str(bare)).kernel_time_us == 3
    assert read_trace(writer.write(tmp_path / "trace.json.gz")).kernel_time_us == 3


@pytest.mark.parametrize(
    "arguments",
    [
        {"Input Dims": "[[8, 8]]", "Input type": "float"},
        {"Input Dims": [8, None, {"a": 1}, [[8, 8], 4], ["8"]], "Input type": [None, 3, {}]},
        {"Input Dims": [[8, 8]], "Input type": [], "Input Strides": 4, "Concrete Inputs": [[1], {"a": []}]},
        {"External id": "x", "Sequence number": "7", "Fwd thread id": None, "Call stack": 5},
        {"Input Dims": [[64, 32], [32]], "Input type": ["float", "float"]},
    ],
)
def test_arguments_of_an_unknown_form_are_left_out(tmp_path: Path, arguments: dict[str, object]) -> None:
    writer = TraceWriter()
    for name in ("aten::mm", "aten::linear", "aten::convolution_backward", "aten::copy_", "aten::_softmax"):
        writer.op(name, [(FP16_GEMM, 3)], **arguments)
    writer.events.append({"ph": "X", "cat": None, "name": None, "args": []})
    writer.events.append({"ph": "X", "cat": "kernel", "ts": "late", "dur": None, "args": {"stream": "0x7"}})
    path = tmp_path / "trace.json"
    document = writer.document() | {"deviceProperties": 3, "distributedInfo": []}
    path.write_text(json.dumps(document))
    (profile,) = read_profile(str(path))
    assert profile.summary.kernel_time_us == 15


def test_a_trace_that_torch_recorded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.ReLU())
    x = torch.randn(8, 24)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        model(x).sum().backward()
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    document = json.loads(path.read_text())
    # The kernels that a GPU would have run: one for every product.
    writer = TraceWriter()
    for event in document["traceEvents"]:
        if event.get("name") in ("aten::addmm", "aten::mm") and event.get("ph") == "X":
            start_us = event["ts"] + event["dur"] + 1e6
            writer.launch_from(event, document["traceEvents"], FP16_GEMM, start_us, 10)
    path.write_text(json.dumps(document | {"traceEvents": document["traceEvents"] + writer.events}))
    trace = read_trace(str(path))
    operators = [kernel.operator for kernel in trace.kernels]
    assert len(operators) >= 2
    assert operators[0] is not None
    assert operators[0].name == "aten::addmm"
    assert operators[0].dims[1:3] == ((8, 24), (24, 40))
    assert operators[0].dtypes[1] == "float"
    backward = [operator for operator in operators if operator is not None and operator.is_backward]
    assert backward
    assert {operator.origin.name for operator in backward} == {"aten::addmm"}
