"""Lowering never fails: what it does not understand is a gap; and every known operator is understood."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graph_support import make_op, spec
from hypothesis import given, settings
from hypothesis import strategies as st
from test_graph_json import ops

from tclint.core.toml import parse_toml
from tclint.graph.lowering.step import forward_flops, lower
from tclint.graph.ops import OP_KINDS, Graph, Op

ROOT = Path(__file__).parents[2]
KIND_TABLE = ROOT / "tclint" / "tracing" / "record" / "op_kinds.toml"
KINDS: dict[str, list[str]] = parse_toml(KIND_TABLE.read_text(encoding="utf-8"))
NAMES = sorted((name, kind) for kind, names in KINDS.items() for name in names)
ARGUMENTS = ["self", "input", "weight", "query", "key", "value", "params[0]", "mask"]

# Recorded with their parts, which carry the work.
COMPOSITES = {
    "einsum", "tensordot", "chain_matmul", "linalg_multi_dot", "_scaled_dot_product_attention_math",
}  # fmt: skip
# Honest gaps: rare, or internal to backends that no model calls.
WITHOUT_FORMULA = {
    "_trilinear", "matrix_power", "linalg_matrix_power", "conv_tbc", "_flash_attention_forward",
    "_efficient_attention_forward", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "_cudnn_rnn",
}  # fmt: skip


def gaps_of(name: str, kind: str) -> list[str]:
    """Reasons why an op of that name has no formula at all, whatever its arguments."""
    op = make_op(name, kind, {"self": spec(2, 3)}, spec(2, 3))
    return [gap.reason for gap in lower(Graph((op,)), "infer")[1] if gap.reason.startswith("no formula")]


def test_every_operator_that_the_tracer_knows_has_a_formula_or_is_listed() -> None:
    unknown = {name for name, kind in NAMES if kind != "view_or_copy" and gaps_of(name, kind)}
    assert unknown - COMPOSITES == WITHOUT_FORMULA


def test_every_operator_is_of_one_kind() -> None:
    assert {kind for _, kind in NAMES} <= {*OP_KINDS, "view_or_copy"}
    assert len({name for name, _ in NAMES}) == len(NAMES)


@settings(max_examples=100, deadline=None)
@given(ops, st.sampled_from(NAMES), st.data())
def test_any_call_gives_kernels_or_a_gap(op: Op, known: tuple[str, str], data: st.DataObject) -> None:
    name, kind = known
    named = replace(
        op,
        index=0,
        name=name,
        kind="copy" if kind == "view_or_copy" else kind,  # type: ignore[arg-type]
        inputs=tuple(replace(tensor, producer=None) for tensor in op.inputs),
        input_names=tuple(data.draw(st.sampled_from(ARGUMENTS)) for _ in op.inputs),
        parent=None,
    )
    graph = Graph((named,))
    for mode in ("train", "infer"):
        kernels, gaps = lower(graph, mode)
        assert len(gaps) <= 1
        assert all(kernel.flops >= 0 for kernel in kernels)
    assert forward_flops(graph) >= 0


def test_a_call_without_tensors_gives_kernels_or_a_gap() -> None:
    for name, kind in NAMES:
        op = make_op(name, "copy" if kind == "view_or_copy" else kind, {}, spec(2, 3))
        for mode in ("train", "infer"):
            assert len(lower(Graph((op,)), mode)[1]) <= 1, name
