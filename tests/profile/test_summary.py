"""Where the time of a trace went."""

from __future__ import annotations

from pathlib import Path

import pytest
from profile_support import (
    A100,
    ADD,
    COPY,
    FP16_GEMM,
    H100,
    MISALIGNED_GEMM,
    NCCL,
    SGEMM,
    SOFTMAX,
    V100,
    TraceWriter,
)

from tclint.profile.observations import observations
from tclint.profile.reader import read_trace
from tclint.profile.summary import Summary, summarise

TF32_GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)"
HOPPER_GEMM = "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTT"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>"
MM = [[64, 1024], [1024, 512]]


def summary(writer: TraceWriter, tmp_path: Path) -> Summary:
    return summarise(read_trace(writer.write(tmp_path / "trace.json")))


def said(writer: TraceWriter, tmp_path: Path) -> str:
    trace = read_trace(writer.write(tmp_path / "trace.json"))
    return "\n".join(one.text for one in observations(trace, summarise(trace)))


@pytest.mark.parametrize(
    ("device", "kernel", "dims", "dtype", "use", "reason"),
    [
        (A100, FP16_GEMM, MM, "c10::Half", "on", ""),
        (H100, HOPPER_GEMM, MM, "c10::Half", "on", ""),
        (H100, FP16_GEMM, MM, "c10::Half", "older", "Ampere's instructions"),
        (A100, MISALIGNED_GEMM, [[64, 1023], [1023, 512]], "c10::Half", "misaligned",
         "dims that are not multiples of 8: K 1023"),
        (A100, MISALIGNED_GEMM, (), "c10::Half", "misaligned", "dims that are not multiples of 8"),
        (A100, SGEMM, MM, "float", "possible", "float32 without TF32"),
        (V100, "volta_sgemm_128x64_nn", MM, "float", "possible",
         "float32, for which this GPU has no Tensor Cores; autocast to float16 uses them"),
        ({"id": 0}, "volta_sgemm_128x64_nn", MM, "float", "possible",
         "float32, on a GPU that the trace does not name"),
        (A100, GEMV, [[64, 1024], [1024, 1]], "float", "narrow", "a product with a vector"),
        (A100, SGEMM, [[64, 1], [1, 512]], "float", "narrow", "K = 1"),
        (V100, "volta_fp16_sgemm_fp16_128x64_nn", [[64, 1023], [1023, 512]], "c10::Half", "possible",
         "dims that are not multiples of 8: K 1023"),
        (A100, ADD, [[64, 64]], "float", "none", ""),
        (A100, "secret_kernel(float*)", [[64, 64]], "float", "unknown", ""),
        (A100, "triton_tem_fused_mm_3", MM, "c10::Half", "on", ""),
        (A100, "triton_tem_fused_mm_3", MM, "float", "unknown", "the kernel's name does not tell"),
        (V100, "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, 0, float>",
         [[8, 32, 56, 56], [32, 1, 3, 3]], "float", "narrow",
         "a depthwise convolution multiplies no matrices"),
    ],
)  # fmt: skip
def test_use_of_tensor_cores(
    tmp_path: Path, device: dict[str, object], kernel: str, dims: object, dtype: str, use: str, reason: str
) -> None:
    writer = TraceWriter(device)
    name = "aten::cudnn_convolution" if "conv2d" in kernel else "aten::mm"
    writer.op(name, [(kernel, 10)], dims, dtype)  # type: ignore[arg-type]
    found = summary(writer, tmp_path)
    assert list(found.by_use) == [use]
    (row,) = found.operators
    assert (row.use, row.reason) == (use, reason)


@pytest.mark.parametrize(
    ("strides", "kernel", "reason"),
    [
        ([[512, 1], [1, 512]], MISALIGNED_GEMM, "N 30522"),  # a linear layer: K lies contiguous in both
        ([[1, 141], [30522, 1]], MISALIGNED_GEMM, "M 141, N 30522"),
        ([], MISALIGNED_GEMM.replace("_nn_", "_tn_"), "N 30522"),
        ([], MISALIGNED_GEMM.replace("_nn_", "_"), "M 141, N 30522"),  # nothing tells the layout
    ],
)
def test_only_contiguous_dims_are_misaligned(
    tmp_path: Path, strides: list[list[int]], kernel: str, reason: str
) -> None:
    writer = TraceWriter()
    recorded = {"Input Strides": strides} if strides else {}
    writer.op("aten::mm", [(kernel, 10)], [[141, 512], [512, 30522]], **recorded)
    (row,) = summary(writer, tmp_path).operators
    assert row.reason == f"dims that are not multiples of 8: {reason}"


def test_float32_beside_tf32_is_the_librarys_choice(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::mm", [(TF32_GEMM, 10)], MM, "float")
    writer.op("aten::mm", [(SGEMM, 5)], [[64, 8], [8, 512]], "float")
    writer.op("aten::mm", [(SGEMM, 4)], [[64, 2048], [2048, 512]], "float")
    reasons = {row.sizes: row.reason for row in summary(writer, tmp_path).operators}
    assert reasons["M 64, N 512, K 8"] == "small dims: K 8"
    assert "library chose" in reasons["M 64, N 512, K 2048"]


def test_reasons_of_several_sizes_are_one_observation(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::mm", [(TF32_GEMM, 100)], MM, "float")
    for k in (8, 12, 16):
        writer.op("aten::mm", [(SGEMM, 2)], [[64, k], [k, 512]], "float")
    text = "could run on Tensor Cores: small dims: K 8, K 12 and K 16."
    assert text in said(writer, tmp_path)


def test_a_trace_in_float32_is_told_so_with_the_share_that_could_run_on_tensor_cores(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::mm", [(SGEMM, 75)], MM, "float")
    writer.op("aten::add", [(ADD, 25)], [[64, 64]], "float")
    found = summary(writer, tmp_path)
    assert found.percent(found.by_use["possible"].time_us) == 75
    assert found.tensor_core_percent == 0
    assert "float32 without TF32. torch.set_float32_matmul_precision('high')" in said(writer, tmp_path)


def test_idle_time_waiting_for_launches_and_pauses(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(ADD, 1000, 1010, 100)
    writer.launch(ADD, 1400, 1410, 100)  # launched 290 us after the GPU was free
    writer.launch(ADD, 1420, 1600, 100)  # launched in time: the GPU itself waited 90 us
    writer.span("enumerate(DataLoader)#__next__", 1650, 4000, "user_annotation")
    writer.launch(ADD, 6000, 6010, 100)  # 4300 us: no launch takes that long
    found = summary(writer, tmp_path)
    assert found.window_us == 5100
    assert found.busy_us == 400
    assert found.launch_wait_us == 290
    assert {name: share.time_us for name, share in found.pauses.items()} == {
        "enumerate(DataLoader)#__next__": 4300
    }
    assert not found.is_launch_bound
    assert "most of it during enumerate(DataLoader)#__next__" in said(writer, tmp_path)


def test_a_launch_bound_trace(tmp_path: Path) -> None:
    writer = TraceWriter()
    for _ in range(10):
        writer.op("aten::add", [(ADD, 20)])
    found = summary(writer, tmp_path)
    assert found.is_launch_bound
    assert "Launch-bound" in said(writer, tmp_path)


def test_communication_stands_apart(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(ADD, 1000, 1010, 100, stream=7)
    writer.launch(NCCL, 1001, 1060, 200, stream=20)
    found = summary(writer, tmp_path)
    assert found.kernel_time_us == 100
    assert found.communication_us == 200
    assert found.exposed_communication_us == 150
    assert "communication" not in found.by_kind


def test_conversions(tmp_path: Path) -> None:
    writer = TraceWriter()
    began = writer.op("aten::copy_", [(COPY, 30)], [[8, 8], [8, 8]], **{"Input type": ["c10::Half", "float"]})
    writer.span("aten::to", began - 1, 101)
    began = writer.op("aten::copy_", [(COPY, 20)], [[8, 8], [8, 8]])
    writer.span("aten::contiguous", began - 1, 101)
    writer.op("aten::cat", [(COPY, 10)], [[8, 8]])
    writer.op("aten::cudnn_convolution", [("void cudnn::ops::nchwToNhwcKernel<__half, __half, float>", 5)])
    found = summary(writer, tmp_path).conversions
    assert (found.dtype_us, found.layout_us, found.copy_us) == (30, 25, 10)


def test_copies_and_memsets(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::add", [(ADD, 10)])
    writer.activity("Memcpy HtoD (Pinned -> Device)", 2000, 7, category="gpu_memcpy")
    writer.activity("Memcpy DtoD (Device -> Device)", 2010, 3, category="gpu_memcpy")
    writer.activity("Memset (Device)", 2020, 2, category="gpu_memset")
    found = summary(writer, tmp_path)
    assert (found.kernel_time_us, found.transfer_us, found.device_copy_us, found.memset_us) == (10, 7, 3, 2)


def test_kernels_launched_before_the_window(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.activity(ADD, 900, 30, correlation=99)
    writer.launch(ADD, 1000, 1010, 70)
    writer.activity(ADD, 1200, 20, correlation=98)
    found = summary(writer, tmp_path)
    # The second has a launch, but stands in no operator; the third was lost for another reason.
    assert found.not_linked_us == 120
    assert found.before_window_us == 30


def test_operators_are_summed_by_sizes_and_direction(tmp_path: Path) -> None:
    writer = TraceWriter()
    for _ in range(3):
        writer.op("aten::mm", [(FP16_GEMM, 10), (ADD, 1)], MM, **{"Fwd thread id": 0, "Sequence number": 1})
    writer.op("aten::mm", [(FP16_GEMM, 50)], MM, **{"Fwd thread id": 1, "Sequence number": 1})
    rows = summary(writer, tmp_path).operators
    assert [(row.direction, row.calls, row.time_us) for row in rows] == [
        ("backward", 1, 50),
        ("forward", 3, 33),
    ]
    assert rows[1].kernels == [FP16_GEMM, ADD]


@pytest.mark.parametrize("tokens", [3137, 8])
def test_attention_that_is_written_out(tmp_path: Path, tokens: int) -> None:
    writer = TraceWriter(H100)
    for _ in range(2):
        began = writer.op("aten::copy_", [(COPY, 4)], [[12, 64, tokens]])
        writer.op("aten::bmm", [(MISALIGNED_GEMM, 100)], [[12, tokens, 64], [12, 64, tokens]])
        writer.span("aten::matmul", began - 1, 201)
        writer.op("aten::mul", [(ADD, 50)], [[12, tokens, tokens]])
        writer.op("aten::_softmax", [(SOFTMAX, 200)], [[12, tokens, tokens]])
        writer.op("aten::bmm", [(MISALIGNED_GEMM, 90)], [[12, tokens, tokens], [12, tokens, 64]])
        writer.op("aten::mm", [(FP16_GEMM, 30)], MM)
    trace = read_trace(writer.write(tmp_path / "trace.json"))
    (found,) = [one for one in observations(trace, summarise(trace)) if "written out" in one.text]
    assert found.text.startswith("2 attentions written out")
    assert f"{tokens} x {tokens} tokens with heads of 64" in found.text
    assert found.time_us == 2 * 444
    assert "ARC005" in found.rules


@pytest.mark.parametrize(
    ("softmax_dims", "second"),
    [
        ([[12, 128, 128]], [[12, 128, 64], [12, 64, 32]]),  # the second product reads something else
        ([[12, 16]], [[12, 128, 128], [12, 128, 64]]),  # the softmax is of something else
    ],
)
def test_products_around_another_softmax_are_no_attention(
    tmp_path: Path, softmax_dims: list[list[int]], second: list[list[int]]
) -> None:
    writer = TraceWriter()
    writer.op("aten::bmm", [(FP16_GEMM, 100)], [[12, 128, 64], [12, 64, 128]])
    writer.op("aten::_softmax", [(SOFTMAX, 200)], softmax_dims)
    writer.op("aten::bmm", [(FP16_GEMM, 90)], second)
    assert "written out" not in said(writer, tmp_path)


@pytest.mark.parametrize("first", ["aten::addmm", "aten::mm"])
@pytest.mark.parametrize("loss", ["log softmax", "softmax and its gradient", "softmax and a loss"])
def test_a_classifier_and_its_gradient_are_no_attention(tmp_path: Path, first: str, loss: str) -> None:
    """Where nothing tells the backward pass from the forward."""
    writer = TraceWriter()
    writer.op(first, [(FP16_GEMM, 100)], [[512, 1024], [1024, 10]])
    if loss == "log softmax":
        writer.op("aten::_log_softmax", [(SOFTMAX, 20)], [[512, 10]])
    else:
        writer.op("aten::_softmax", [(SOFTMAX, 20)], [[512, 10]])
    if loss == "softmax and a loss":
        writer.op("aten::nll_loss_forward", [("nll_loss_forward_reduce_cuda_kernel_2d", 5)], [[512, 10]])
    elif loss == "softmax and its gradient":
        writer.op("aten::_softmax_backward_data", [(SOFTMAX, 20)], [[512, 10], [512, 10]])
    writer.op("aten::mm", [(FP16_GEMM, 100)], [[512, 10], [10, 1024]])
    assert "written out" not in said(writer, tmp_path)


def test_layers_around_a_softmax_are_no_attention(tmp_path: Path) -> None:
    writer = TraceWriter()
    began = writer.op("aten::mm", [(FP16_GEMM, 100)], [[512, 1024], [1024, 10]])
    writer.span("aten::linear", began - 1, 101)
    writer.op("aten::_softmax", [(SOFTMAX, 20)], [[512, 10]])
    writer.op("aten::addmm", [(FP16_GEMM, 100)], [[1024], [512, 10], [10, 1024]])
    assert "written out" not in said(writer, tmp_path)


def test_a_compilers_operator_tells_what_its_kernel_does_not(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("triton_poi_fused_add_0", [("triton__0d1d2d3d", 10)], [[64, 64]])
    writer.op("CompiledFunction", [("triton__0d1d2d3d", 7)], [[64, 64]])
    found = summary(writer, tmp_path)
    assert {kind: share.time_us for kind, share in found.by_kind.items()} == {"elementwise": 10, "fused": 7}
    assert found.by_use["unknown"].time_us == 7


def test_unknown_names_are_counted(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("my::op", [("secret_kernel(float*)", 10)])
    found = summary(writer, tmp_path)
    assert found.unknown_names["secret_kernel(float*)"].count == 1


def test_operators_of_the_optimizer_stand_apart(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.op("aten::add", [(ADD, 10)], [[64, 64]])
    began = writer.host_us
    writer.op("aten::add", [(ADD, 30)], [[64, 64]])
    writer.span("Optimizer.step#SGD.step", began - 1, 102, "user_annotation")
    found = summary(writer, tmp_path)
    assert [(row.direction, row.time_us) for row in found.operators] == [("optimizer", 30), ("forward", 10)]
    assert found.optimizer_us == 30


def test_a_pause_is_of_a_call_only_where_that_took_more_than_half_of_it(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.launch(ADD, 1000, 1010, 100)
    writer.span("enumerate(DataLoader)#__next__", 1110, 2000, "user_annotation")
    writer.launch(ADD, 5110, 5120, 100)  # 4000 us after the GPU was free
    assert {name: share.time_us for name, share in summary(writer, tmp_path).pauses.items()} == {"": 4000}
