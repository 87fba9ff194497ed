"""What benchmarks/inputs calls right: ranks by argument, FLOPs per sample; its list is well formed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "inputs"))

from inputs_judge import Traced, judge
from inputs_rows import Row, batch_dim, read_rows, stated_tensors


def row(**changes: object) -> Row:
    fields: dict[str, object] = {
        "name": "net",
        "family": "test",
        "target": "net.py:Net",
        "source": "README.md",
        "inputs": {"x": "float32[128,3,224,224]"},
    }
    return Row(**{**fields, **changes})  # type: ignore[arg-type]


def traced(flops: float, **shapes: tuple[int, ...]) -> Traced:
    return Traced(shapes, flops)


TRUE = traced(128e9, x=(128, 3, 224, 224))


def test_another_batch_is_as_good() -> None:
    verdict = judge(row(), TRUE, traced(8e9, x=(8, 3, 224, 224)))
    assert verdict.rank_ok
    assert verdict.flops_ratio == pytest.approx(1)
    assert verdict.flops_ok


@pytest.mark.parametrize(("flops", "right"), [(4e9, True), (3.9e9, False), (16e9, True), (16.1e9, False)])
def test_flops_per_sample_may_be_off_by_two(flops: float, right: bool) -> None:
    assert judge(row(), TRUE, traced(flops, x=(8, 3, 200, 200))).flops_ok is right


def test_nothing_inferred_is_wrong() -> None:
    verdict = judge(row(), TRUE, None)
    assert (verdict.rank_ok, verdict.flops_ok) == (False, False)


def test_every_true_tensor_has_to_be_there_with_its_rank() -> None:
    inputs = {"x": "float32[4,3,8,8]", "t": "int64[4]<1000"}
    true = traced(4.0, x=(4, 3, 8, 8), t=(4,))
    assert judge(row(inputs=inputs), true, traced(1.0, x=(1, 3, 8, 8), t=(1,), y=(1,))).rank_ok
    assert not judge(row(inputs=inputs), true, traced(1.0, x=(1, 3, 8, 8))).rank_ok
    assert not judge(row(inputs=inputs), true, traced(1.0, x=(1, 3, 8, 8), t=(1, 1))).rank_ok
    assert judge(row(inputs=inputs, any_rank=("t",)), true, traced(1.0, x=(1, 3, 8, 8), t=())).rank_ok


def test_lists_may_have_other_lengths() -> None:
    images = row(inputs={"images": ["float32[3,800,1066]", "float32[3,800,1066]"]}, batch="-")
    true = Traced({"images[0]": (3, 800, 1066), "images[1]": (3, 800, 1066)}, 2.0)
    assert judge(images, true, Traced({"images[0]": (3, 800, 800)}, 1.0)).rank_ok
    assert not judge(images, true, Traced({"images[0]": (1, 3, 800, 800)}, 1.0)).rank_ok


def test_the_batch_may_be_another_dim() -> None:
    tokens = row(inputs={"src": "int64[35,20]"}, batch="src[1]")
    verdict = judge(tokens, traced(20.0, src=(35, 20)), traced(4.0, src=(35, 4)))
    assert verdict.flops_ratio == pytest.approx(1)
    assert judge(tokens, traced(20.0, src=(35, 20)), traced(4.0, src=(35,))).flops_ratio is None


def test_graphs_have_no_batch() -> None:
    cora = row(inputs={"x": "float32[2708,1433]"}, batch="-")
    assert judge(cora, traced(10.0, x=(2708, 1433)), traced(1.0, x=(8, 1433))).flops_ratio == pytest.approx(
        0.1
    )


def test_ranks_are_judged_without_a_true_trace() -> None:
    verdict = judge(row(), None, traced(1.0, x=(1, 3, 32, 32)))
    assert verdict.rank_ok
    assert verdict.flops_ratio is None


def test_the_list_is_well_formed() -> None:
    rows = read_rows()
    assert len(rows) >= 150
    for one in rows:
        assert one.family
        assert one.source
        assert one.mode in ("train", "infer")
        assert all("=" in argument for argument in one.arguments)
        counted = batch_dim(one)
        if counted is not None:
            spec = dict(stated_tensors(one.inputs))[counted[0]]
            assert spec is None or counted[1] < len(spec.shape), one.name
