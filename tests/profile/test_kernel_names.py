"""What the names of kernels tell. Names are those of published traces and issues."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from tclint.core.toml import packaged_toml
from tclint.profile.kernel_names import MATRIX_KINDS, kernel_name

NAMES = Path(__file__).with_name("kernel_names.csv")
LABELS = Path(__file__).parents[2] / "benchmarks" / "kernel_labels.csv"


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def short(row: dict[str, str]) -> str:
    return row["name"][:60]


@pytest.mark.parametrize("row", rows(NAMES), ids=short)
def test_what_a_name_tells(row: dict[str, str]) -> None:
    found = kernel_name(row["name"])
    tile = "x".join(map(str, found.tile)) if found.tile else ""
    assert {
        "kind": found.kind,
        "tensor_cores": found.tensor_cores,
        "generation": found.generation or "",
        "precision": found.precision or "",
        "tile": tile,
        "alignment": str(found.alignment or ""),
    } == {key: value for key, value in row.items() if key != "name"}


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("ampere_sgemm_64x32_sliced1x4_tn", "tn"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_nt_align8>", "nt"),
        ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "nhwc"),
    ],
)
def test_layouts(name: str, layout: str) -> None:
    assert kernel_name(name).layout == layout


@pytest.mark.parametrize("row", rows(LABELS), ids=short)
def test_names_labelled_by_hand(row: dict[str, str]) -> None:
    found = kernel_name(row["name"])
    assert (found.kind, found.tensor_cores) == (row["kind"], row["tensor_cores"])


def test_the_labels_are_many_and_distinct() -> None:
    names = Counter(row["name"] for row in rows(LABELS))
    assert len(names) >= 150
    assert max(names.values()) == 1


def test_every_pattern_names_its_source() -> None:
    for entry in packaged_toml("tclint.profile", "kernel_names.toml")["pattern"]:
        assert entry["source"], entry["match"]
        assert entry["tensor_cores"] in ("yes", "no", "16-bit", "unknown"), entry["match"]
        assert entry["kind"] in MATRIX_KINDS or entry["tensor_cores"] in ("no", "unknown"), entry["match"]
