"""Whole-model rows of the accuracy table, and the fit of constants to them, on a small network."""

from __future__ import annotations

import gzip
import io
import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tclint
from tclint.cost.gpu import load_gpu
from tclint.cost.kernels.pricing import price_works

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
pytest.importorskip("scipy")

import calibrate_models  # noqa: E402
import cost_accuracy  # noqa: E402
import timm_models  # noqa: E402
from accuracy_page import page  # noqa: E402
from measurements import as_unmeasured  # noqa: E402

HEADER = "gpu,model,phase,amp,layout,batch,img,samples_per_sec,source\n"
NAME = "tclint_test_network"


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32),
        nn.Conv2d(32, 64, 1),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1, groups=8),
        nn.Flatten(),
        nn.Linear(64 * 16 * 16, 128),
        nn.LayerNorm(128),
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    data, traces = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("traces")
    graph = tclint.trace(network, torch.empty(64, 3, 32, 32))
    for key in (f"{NAME}-32-64", f"{NAME}-32-64-unfused"):
        (traces / f"{key}.json.gz").write_bytes(gzip.compress(graph.to_json().encode()))
    (traces / "unknown-32-64.json.gz").write_bytes(b"")
    lines = [
        f"rtx-3090,{NAME},{phase},amp,{layout},64.0,32,{speed},test\n"
        for phase, layout, speed in (
            ("infer", "nchw", 200000.0),
            ("infer", "nhwc", 300000.0),
            ("train", "nchw", 50000.0),
        )
    ]
    lines += [
        "rtx-3090,unknown,infer,amp,nchw,64.0,32,1000.0,test\n",
        "rtx-3090,broken,infer,amp,nchw,,32,,test\n",
    ]
    (data / "models.csv").write_text(HEADER + "".join(lines))
    return data, traces


def accuracy(*options: str) -> list[dict[str, Any]]:
    with redirect_stdout(io.StringIO()) as printed:
        assert cost_accuracy.main(["--format", "json", *options]) == 0
    rows: list[dict[str, Any]] = json.loads(printed.getvalue())["rows"]
    return rows


def test_models_are_priced_as_their_row_says(folders: tuple[Path, Path]) -> None:
    data, traces = folders
    lines = {line["kind"]: line for line in accuracy("--data", str(data), "--traces", str(traces))}
    (rows, unreadable) = timm_models.read_rows(data / "models.csv")
    assert unreadable == 1
    for row in rows:
        if row.model == NAME:
            graph = timm_models.Traces(traces).graph(row)
            assert graph is not None
            step_us = timm_models.price(graph, timm_models.scenario_of(row)).step_time_us
            line = lines[f"model {row.phase} {row.layout}"]
            assert line["n"] == 1
            assert line["bias"] == pytest.approx(100 * (step_us / row.step_us - 1), abs=0.02)
            assert line["roofline_mean"] is not None
            assert line["calibrated_roofline_mean"] is not None
    assert "1 rows of models" in lines["model infer nchw"]["note"]
    assert "sign right" in lines["channels_last infer"]["note"]


def test_norms_of_inference_run_in_the_dtype_of_their_input(folders: tuple[Path, Path]) -> None:
    rows = {
        row.phase: row for row in timm_models.read_rows(folders[0] / "models.csv")[0] if row.model == NAME
    }
    traces = timm_models.Traces(folders[1])
    dtypes = {}
    for phase, row in rows.items():
        graph = traces.graph(row)
        assert graph is not None
        (norm,) = (
            op for op in timm_models.price(graph, timm_models.scenario_of(row)).ops if "layer_norm" in op.name
        )
        dtypes[phase] = norm.outputs[0].dtype
    assert dtypes == {"infer": "float16", "train": "float32"}


@pytest.mark.parametrize(
    ("model", "key"),
    [("resnet50", "resnet50-224-64"), ("ig_resnext101_32x16d", "resnext101_32x16d-224-64")],
)
def test_renamed_models_are_traced_under_the_name_that_means_them(model: str, key: str) -> None:
    row = timm_models.ModelRow("rtx-3090", model, "infer", "amp", "nchw", 64, 224, 1000.0)
    assert row.key == key
    assert replace(row, phase="train").key == f"{key}-unfused"


def test_without_traces_whole_models_are_a_line_that_says_so(folders: tuple[Path, Path]) -> None:
    for line in accuracy("--data", str(folders[0])):
        assert line["mean"] is None
        assert "--traces" in line["note"]


def test_the_page_has_every_figure_of_the_table(folders: tuple[Path, Path], tmp_path: Path) -> None:
    data, traces = folders
    file = tmp_path / "accuracy.md"
    lines = accuracy("--data", str(data), "--traces", str(traces), "--write", str(file))
    text = file.read_text()
    assert text == page(lines)
    for line in lines:
        if line["mean"] is not None:
            assert f"{line['mean']:.1f}" in text
        else:
            assert line["note"] in text


def test_the_fit_prices_works_as_the_product_does(folders: tuple[Path, Path]) -> None:
    """With the constants that ship, the fit's own shortcut must give the product's times."""
    gpu = load_gpu("rtx-3090")
    rows = timm_models.read_rows(folders[0] / "models.csv")[0]
    works, _, _ = timm_models.lowered(rows, timm_models.Traces(folders[1]))
    unmeasured = as_unmeasured(gpu)
    own, others = (of.calibrations["attention", "half"].constants for of in (gpu, unmeasured))
    rate = own["math_efficiency_64"] / others["math_efficiency_64"]
    shipped: dict[str, float] = {"sustained": gpu.sustained["half"], "attention.rate": rate}
    for name in calibrate_models.START:
        part, _, constant = name.partition(".")
        kind, key = ("conv", "half") if part == "conv" else ("traffic", part)
        if constant and part != "attention":
            shipped[name] = gpu.calibrations[kind, key].constants[constant]
    times = calibrate_models.Times(unmeasured, works).us(shipped)
    prices = np.array([price.time_us for price in price_works(works, gpu, "fp16") if price])
    assert len(prices) == len(works)
    assert times == pytest.approx(prices, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("vit_base_patch16_224", "vit"),
        ("tf_efficientnet_b0.ns_jft_in1k", "efficientnet"),
        ("gluon_resnet50_v1b", "resnet"),
        ("resnet50d", "resnet"),
        ("regnetx_032", "regnetx"),
    ],
)
def test_families_are_the_words_that_names_begin_with(model: str, family: str) -> None:
    assert timm_models.family(model) == family
