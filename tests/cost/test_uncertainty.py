"""The stated uncertainty: what a GPU's own measurements, its relatives' and strangers' are good for."""

from __future__ import annotations

import pytest

from tclint.cost.gpu import load_gpu
from tclint.cost.kernels.assess import OTHER_GENERATION_ERROR_PERCENT, STAND_IN_FACTOR
from tclint.cost.kernels.pricing import price_works
from tclint.graph.lowering.work import Gemm, Traffic

WORK = Gemm(8192, 4096, 4096, "float16", b_contiguous="k")


def stated(gpu: str, work: Gemm | Traffic = WORK) -> float:
    price = price_works([work], load_gpu(gpu), "fp16")[0]
    assert price is not None
    return price.uncertainty_percent


@pytest.mark.parametrize(("relative", "measured"), [("h100-pcie", "h100"), ("a10", "a100"), ("l4", "l40s")])
def test_relatives_stand_in_at_a_price(relative: str, measured: str) -> None:
    assert stated(relative) == pytest.approx(STAND_IN_FACTOR * stated(measured), rel=0.35)
    assert stated(relative) > stated(measured)


def test_constants_of_other_kernels_are_worth_less() -> None:
    assert stated("h100") < stated("h100-pcie") < OTHER_GENERATION_ERROR_PERCENT
    assert stated("rtx-5090") >= OTHER_GENERATION_ERROR_PERCENT
    moved = Traffic("elementwise", "mul", 1 << 26, 1 << 26)
    assert stated("rtx-5090", moved) > stated("a10", moved) > stated("a100", moved)


def test_a_gpus_own_constants_for_another_class_stay_its_own() -> None:
    unknown = Traffic("embedding", "embedding", 1 << 26, 1 << 26)
    assert stated("a100", unknown) < OTHER_GENERATION_ERROR_PERCENT
