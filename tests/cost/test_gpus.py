"""The GPU table: complete, sourced, and clear about what it does not know."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import calibrate
import calibrate_models

import tclint.cost.gpu
from tclint.core.errors import UsageError
from tclint.core.toml import parse_toml
from tclint.cost.gpu import all_gpus, load_gpu

IDS = (
    *("v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-32gb", "t4"),
    *("a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"),
    *("a10", "a40", "l4", "l40s", "rtx-3090", "rtx-4090"),
    *("h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb"),
    *("a10g", "rtx-a6000", "rtx-2080-ti", "rtx-3080", "rtx-3090-ti", "h800-sxm5-80gb", "gh200-96gb"),
    *("rtx-6000-ada", "rtx-pro-6000", "b300-sxm-288gb", "l20"),
)


@pytest.mark.parametrize("gpu_id", IDS)
def test_promised_gpus_are_there(gpu_id: str) -> None:
    assert load_gpu(gpu_id).id == gpu_id


@pytest.mark.parametrize(
    ("name", "gpu_id"),
    [
        ("a100", "a100-sxm4-80gb"),
        ("V100", "v100-sxm2-16gb"),
        ("h100", "h100-sxm5-80gb"),
        ("h200", "h200-sxm-141gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("2080ti", "rtx-2080-ti"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ],
)
def test_aliases_and_device_names(name: str, gpu_id: str) -> None:
    assert load_gpu(name).id == gpu_id


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *[("3070", "3080"), ("RTX 4080 Super", "4090"), ("a5000", "a6000"), ("rtx-pro-5000", "pro-6000")],
        *[("v10", "v100"), ("h20", "h200"), ("gb200", "b200"), ("l40", "l40s"), ("a800", "a100")],
    ],
)
def test_an_unknown_gpu_is_answered_with_one_of_its_family(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{hint}'"):
        load_gpu(name)


@pytest.mark.parametrize("name", ["1080ti", "p100", "k80", "mi300x", "titan rtx", "quadro rtx 8000", "x", ""])
def test_a_gpu_of_another_family_is_no_misspelling(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_gpu(name)
    assert "Did you mean" not in str(caught.value)


def test_a_gpu_known_from_its_datasheet_alone_is_not_called_calibrated() -> None:
    for gpu_id in ("rtx-2080-ti", "a10g", "h800-sxm5-80gb", "b300-sxm-288gb"):
        gpu = load_gpu(gpu_id)
        assert not gpu.calibrated("fp16")
        assert all(one.inherited_from not in (None, gpu_id) for one in gpu.calibrations.values())


def test_every_gpu_says_where_its_figures_come_from() -> None:
    for gpu in all_gpus():
        assert gpu.source.strip()
        assert "l2_gb_per_s" in gpu.inferred, gpu.id
        if gpu.sustained:
            assert "sustained" in gpu.inferred, gpu.id


def test_the_figures_of_every_gpu_can_be_right() -> None:
    classes = {"fp16", "bf16", "tf32", "fp32", "fp16_cuda", "fp64", "int8", "fp8"}
    for gpu in all_gpus():
        assert {"fp32"} <= set(gpu.peak_tflops) <= classes, gpu.id
        figures = (gpu.sm_count, gpu.boost_mhz, gpu.dram_gb_per_s, gpu.dram_gib, gpu.l2_mib, gpu.l2_gb_per_s)
        assert min(*figures, *gpu.peak_tflops.values(), *gpu.sustained.values()) > 0, gpu.id


def test_every_gpu_has_constants_of_every_kind() -> None:
    kinds = [
        ("gemm", "half"),
        ("gemm", "fp32"),
        ("conv", "half"),
        ("attention", "half"),
        ("traffic", "elementwise"),
    ]
    for gpu in all_gpus():
        for key in kinds:
            calibration = gpu.calibration(*key)
            assert calibration is not None, (gpu.id, key)
            assert calibration.n > 0
            assert calibration.held_out_mean_percent > 0
            assert calibration.fitted_on


def test_inherited_constants_are_not_called_calibrated() -> None:
    assert load_gpu("a100").calibrated("bf16")
    assert load_gpu("h100").calibrated("fp16")
    assert not load_gpu("a40").calibrated("fp16")
    assert load_gpu("a40").calibrations["gemm", "half"].inherited_from == "a100-sxm4-80gb"


def test_hand_checks_of_the_documents() -> None:
    a100, v100 = load_gpu("a100"), load_gpu("v100")
    # 108 SMs x 1.41 GHz x 1024 FMA x 2
    assert a100.sm_count * a100.boost_mhz * 1e6 * 1024 * 2 / 1e12 == pytest.approx(
        a100.peak_tflops["fp16"], rel=1e-3
    )
    assert v100.balance("fp16") == pytest.approx(138.9, abs=0.05)


def test_formats_follow_the_compute_capability() -> None:
    for gpu in all_gpus():
        ampere = gpu.compute_capability >= (8, 0)
        assert gpu.supports("bf16") == ampere, gpu.id
        assert gpu.supports("tf32") == ampere, gpu.id
        assert gpu.supports("fp8") == (gpu.compute_capability >= (8, 9)), gpu.id


def test_every_name_is_of_one_gpu_and_every_file_named_after_its_own() -> None:
    names: dict[str, str] = {}
    for file in resources.files("tclint.cost.gpu").iterdir():
        if not file.name.endswith(".toml"):
            continue
        data = parse_toml(file.read_text(encoding="utf-8"))
        if "id" in data:
            assert file.name == f"{data['id']}.toml"
            rows = {data["id"]: data}
        else:
            rows = data
            assert not any("calibration" in row for row in rows.values())
        for gpu_id, row in rows.items():
            for name in (gpu_id, *row.get("aliases", ())):
                assert names.setdefault(name, gpu_id) == gpu_id, name
    assert all(load_gpu(name).id == gpu_id for name, gpu_id in names.items())


def shipped() -> Iterator[tuple[str, str, str, dict[str, float], bool]]:
    """GPU, kind, class and fitted constants of every calibration, and whether whole models gave them."""
    for path in sorted(Path(tclint.cost.gpu.__file__).parent.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        tables = parse_toml(text).get("calibration", {})
        for kind, classes in tables.items():
            for name, calibration in classes.items():
                found = re.search(rf"\[calibration\.{kind}\.{name}\.constants\]\n(#.*)?", text)
                assert found is not None
                assumed = (found[1] or "").partition(": ")[2].split(", ")
                constants = calibration["constants"]
                fitted = {key: value for key, value in constants.items() if key not in assumed}
                yield path.stem, kind, name, fitted, "whole models" in calibration["fitted_on"]


def test_no_shipped_constant_lies_at_a_bound_of_its_search() -> None:
    seen, stuck = 0, []
    for gpu, kind, name, fitted, by_models in shipped():
        bounds: dict[str, tuple[float, float]] = calibrate.bounds_of(kind, name)
        if by_models:
            prefix = f"{'conv' if kind == 'conv' else name}."
            bounds = {
                key.removeprefix(prefix): (least, most)
                for key, (_, least, most) in calibrate_models.START.items()
                if key.startswith(prefix)
            }
        chosen = {key: value for key, value in fitted.items() if key not in calibrate.CHOSEN}
        seen += len(chosen)
        stuck += [f"{gpu} {kind}.{name} {found}" for found in calibrate.at_bounds(chosen, bounds)]
    assert seen > 300
    assert stuck == []
