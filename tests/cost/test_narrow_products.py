"""Narrow products of odd sizes, which no kernel before Hopper splits over K in bf16."""

from __future__ import annotations

import pytest
from cost_support import price

from tclint.cost.kernels.assess import THIN_ERROR_PERCENT
from tclint.graph.lowering.work import Gemm


def gram(columns: int, others: int = 100, dtype: str = "bfloat16") -> Gemm:
    """a.T @ b, each with 100,000 rows."""
    return Gemm(columns, others, 100_000, dtype, a_contiguous="m", b_contiguous="n", c_contiguous="n")


@pytest.mark.parametrize(("columns", "told_us"), [(3, 274), (7, 293), (15, 330)])
def test_an_odd_side_makes_sums_over_many_rows_ten_times_slower(columns: int, told_us: float) -> None:
    odd = price(gram(columns))
    assert odd.time_us == pytest.approx(told_us, rel=0.15)
    assert odd.time_us > 10 * price(gram(columns + 1)).time_us
    assert odd.split_k == 1
    assert odd.uncertainty_percent >= THIN_ERROR_PERCENT
    assert "odd side" in odd.tensor_core_reason


@pytest.mark.parametrize(("m", "n", "k", "told_us"), [(16, 3, 30_000_000, 685e3), (2, 13, 20_569_856, 449e3)])
def test_rows_far_apart_cost_a_wait_for_every_step(m: int, n: int, k: int, told_us: float) -> None:
    assert price(Gemm(m, n, k, "bfloat16", a_contiguous="k", b_contiguous="n")).time_us == pytest.approx(
        told_us, rel=0.1
    )
    even = Gemm(m, n + 1, k, "bfloat16", a_contiguous="k", b_contiguous="n")
    assert price(even).time_us < told_us / 50


@pytest.mark.parametrize(
    ("work", "gpu"),
    [
        (gram(17), "a100"),
        (gram(7, others=768), "a100"),
        (gram(7, dtype="float16"), "a100"),
        (gram(1), "a100"),
        (gram(7), "h100"),
    ],
    ids=["wider than a tile", "several tiles", "fp16", "a vector", "Hopper"],
)
def test_other_products_of_odd_sizes_split_k(work: Gemm, gpu: str) -> None:
    assert price(work, gpu).split_k > 1
