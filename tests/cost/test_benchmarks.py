"""The accuracy benchmark on small folders of files, and on the measurements where they are at hand."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from accuracy_page import page, summary_of, with_summary  # noqa: E402

DATA = os.environ.get("TCLINT_MEASUREMENTS")
KEYS = {
    "file",
    "gpu",
    "dtype",
    "kind",
    "n",
    "mean",
    "median",
    "bias",
    "within_10_percent",
    "roofline_mean",
    "roofline_median",
    "calibrated_roofline_mean",
    "calibrated_roofline_median",
}
GEMM_HEADER = "gpu,dtype,op,batch,m,n,k,transpose_b,time_us,source\n"


def accuracy(folder: Path | str, *options: str) -> list[dict[str, Any]]:
    pytest.importorskip("scipy")
    import cost_accuracy

    with redirect_stdout(io.StringIO()) as printed:
        assert cost_accuracy.main(["--data", str(folder), "--format", "json", *options]) == 0
    rows: list[dict[str, Any]] = json.loads(printed.getvalue())["rows"]
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [
        f"{gpu},{dtype},linear,1,{m},4096,4096,True,{time_us},test\n"
        for m, time_us in ((16, 24.0), (512, 90.0), (4096, 560.0), (8192, 1120.0))
        for gpu, dtype in (("a100-sxm4-80gb", "bf16"), ("gtx-580", "bf16"), ("a100-sxm4-80gb", "fp3"))
    ]
    (tmp_path / "gemm.csv").write_text(GEMM_HEADER + "".join(lines))
    (tmp_path / "conv.csv").write_text(
        "gpu,dtype,direction,layout,n,c,h,w,k,r,s,pad_h,pad_w,stride_h,stride_w,groups,time_us,source\n"
        "t4,fp16,fwd,nhwc,16,64,56,56,64,3,3,1,1,1,1,1,150.0,test\n"
        "t4,fp16,sideways,nhwc,16,64,56,56,64,3,3,1,1,1,1,1,150.0,test\n"
    )
    (tmp_path / "vector.csv").write_text(
        "gpu,dtype,op,rows,cols,time_us,source\n"
        "h100-sxm5-80gb,fp16,softmax,4096,4096,25.0,test\n"
        "h100-sxm5-80gb,fp16,unheard_of,4096,4096,25.0,test\n"
    )
    (tmp_path / "attention.csv").write_text(
        "gpu,dtype,batch,seq,heads,kv_heads,head_dim,causal,time_us,source\n"
        "l40s,bf16,4,2048,16,16,128,True,300.0,test\n"
    )
    (tmp_path / "models.csv").write_text(
        "gpu,model,phase,amp,layout,batch,img,samples_per_sec,source\n"
        "rtx-3090,resnet50,infer,amp,nhwc,256,224,3000,test\n"
    )
    (tmp_path / "odd.csv").write_text("time_us,something\n1,2\n")
    return tmp_path


def test_one_line_per_file_gpu_dtype_and_kind(folder: Path) -> None:
    rows = accuracy(folder)
    assert all(row.keys() >= KEYS for row in rows)
    priced = {(r["gpu"], r["dtype"], r["kind"]): r for r in rows if r["mean"] is not None}
    assert set(priced) == {
        ("a100-sxm4-80gb", "bf16", "linear"),
        ("t4", "fp16", "conv fwd"),
        ("h100-sxm5-80gb", "fp16", "softmax"),
        ("l40s", "bf16", "attention"),
    }
    linear = priced["a100-sxm4-80gb", "bf16", "linear"]
    assert linear["n"] == 4
    assert linear["median"] < linear["roofline_median"]
    assert abs(linear["bias"]) <= linear["mean"]


def test_what_cannot_be_priced_says_so(folder: Path) -> None:
    notes = {
        (r["file"], r["gpu"], r["dtype"], r["kind"]): r["note"] for r in accuracy(folder) if r["mean"] is None
    }
    assert "gtx-580" in notes["gemm.csv", "gtx-580", "bf16", "linear"]
    assert "fp3" in notes["gemm.csv", "a100-sxm4-80gb", "fp3", "linear"]
    assert "sideways" in notes["conv.csv", "t4", "fp16", "conv sideways"]
    assert "unheard_of" in notes["vector.csv", "h100-sxm5-80gb", "fp16", "unheard_of"]
    assert "--traces" in notes["models.csv", "rtx-3090", "amp", "model infer nhwc"]
    assert notes["odd.csv", "", "", ""] == "unknown columns"


def test_the_split_is_a_fifth_of_the_shapes(tmp_path: Path) -> None:
    shapes = [(n, k) for n in range(64, 2048, 64) for k in range(64, 2048, 64)]
    lines = [f"a100-sxm4-80gb,bf16,linear,1,{m},{n},{k},True,9.0,test\n" for n, k in shapes for m in (1, 64)]
    (tmp_path / "gemm.csv").write_text(GEMM_HEADER + "".join(lines))
    (everything,), (held_out,) = accuracy(tmp_path), accuracy(tmp_path, "--held-out")
    assert everything["n"] == 2 * len(shapes)
    assert held_out["n"] % 2 == 0
    assert 0.15 < held_out["n"] / everything["n"] < 0.25
    assert held_out["split"] == "held out"


def test_a_missing_folder_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    import cost_accuracy

    assert cost_accuracy.main(["--data", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_gpu_as_if_nothing_had_been_measured_on_it(folder: Path) -> None:
    own, stand_in = accuracy(folder), accuracy(folder, "--as-unmeasured")
    attention = [next(row for row in rows if row["kind"] == "attention") for rows in (own, stand_in)]
    assert attention[0]["mean"] != attention[1]["mean"]


@pytest.mark.skipif(DATA is None, reason="TCLINT_MEASUREMENTS names no folder of measurements")
def test_held_out_accuracy_on_the_measurements() -> None:
    assert DATA is not None
    rows = {
        (r["gpu"], r["dtype"], r["kind"]): r for r in accuracy(DATA, "--held-out") if r["mean"] is not None
    }
    limits = {
        ("a100-sxm4-80gb", "bf16", "linear"): 8.0,
        ("h100-sxm5-80gb", "bf16", "linear"): 8.0,
        ("a100-sxm4-80gb", "bf16", "attention"): 15.0,
        ("h100-sxm5-80gb", "bf16", "attention"): 15.0,
        ("v100-pcie-32gb", "fp32", "linear"): 7.0,
    }
    assert {key: rows[key]["mean"] for key in limits if rows[key]["mean"] > limits[key]} == {}
    for row in rows.values():
        assert row["mean"] < row["roofline_mean"], row


def test_the_speed_benchmark_prices_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import cost_speed

    monkeypatch.setattr(cost_speed, "PRODUCTS", 20)
    monkeypatch.setattr(cost_speed, "OPS", 25)
    monkeypatch.setattr(cost_speed, "GPUS", 2)
    monkeypatch.setattr(sys, "argv", ["cost_speed.py", "--runs", "1"])
    cost_speed.main()
    products, eager, compiled = capsys.readouterr().out.splitlines()
    assert products.startswith("20 different products on one GPU: ")
    assert "25 operators" in eager
    # Five layers of a product in three directions at least; compiling fuses, so there are fewer.
    kernels = [int(line.split(" kernels")[0].rsplit(", ", 1)[1]) for line in (eager, compiled)]
    assert kernels[0] > kernels[1] >= 15


def test_the_figures_at_the_top_of_the_page_are_kept_and_renewed() -> None:
    written = with_summary(with_summary(page([]), "figures of last year\n"), "new\n")
    assert summary_of(written) == "new\n"
    assert "figures of last year" not in written
    assert written.startswith("# Accuracy of predicted times\n\n<!--")
    assert summary_of(page([])) == ""
