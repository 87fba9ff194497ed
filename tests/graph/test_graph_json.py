"""A graph survives JSON, whatever is in it, and its size does not spoil lowering."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from graph_support import make_graph, make_op, spec
from hypothesis import given, settings
from hypothesis import strategies as st

from tclint.graph.lowering.step import forward_flops, lower
from tclint.graph.ops import Assumption, Cast, Graph, Op, Parameter, Site, TensorSpec
from tclint.graph.ops.op import OP_KINDS, Checkpoint
from tclint.graph.ops.spec import ITEMSIZE_BYTES

names = st.text(max_size=8)
dims = st.lists(st.integers(0, 9), max_size=4).map(tuple)
dtypes = st.sampled_from(sorted(ITEMSIZE_BYTES))
sites = st.none() | st.builds(Site, names, st.integers(1, 10**6), names)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def tensors(draw: st.DrawFn) -> TensorSpec:
    shape = draw(dims)
    strides = draw(st.none() | st.tuples(*(st.integers(0, 99) for _ in shape)))
    return TensorSpec(
        shape,
        draw(dtypes),
        strides,
        parameter=draw(st.none() | names),
        producer=draw(st.none() | st.integers(0, 99)),
        output_index=draw(st.integers(0, 3)),
        input_name=draw(st.none() | names),
    )


ops = st.builds(
    Op,
    index=st.integers(0, 99),
    name=names,
    kind=st.sampled_from(sorted(OP_KINDS)),
    inputs=st.lists(tensors(), max_size=3).map(tuple),
    outputs=st.lists(tensors(), max_size=2).map(tuple),
    input_names=st.lists(names, max_size=3).map(tuple),
    attributes=st.dictionaries(names, json_values, max_size=3),
    module_path=names,
    module_type=names,
    construct_site=sites,
    construct_library_site=sites,
    call_site=sites,
    call_library_site=sites,
    parent=st.none() | st.integers(0, 99),
    in_place=st.booleans(),
    differentiable=st.booleans(),
    has_own_backward=st.booleans(),
    checkpoint=st.none() | st.builds(Checkpoint, st.integers(0, 9), st.booleans()),
    autocast_disabled=st.booleans(),
    operator=names,
    casts=st.lists(st.builds(Cast, dims, dtypes, dtypes, st.none() | names), max_size=2).map(tuple),
)
parameters = st.builds(
    Parameter,
    names,
    dims,
    dtypes,
    st.booleans(),
    st.booleans(),
    st.lists(names, max_size=2).map(tuple),
    sites,
)
graphs = st.builds(
    Graph,
    ops=st.lists(ops, max_size=3).map(
        lambda drawn: tuple(replace(op, index=index) for index, op in enumerate(drawn))
    ),
    parameters=st.lists(parameters, max_size=2).map(tuple),
    inputs=st.lists(tensors(), max_size=2).map(tuple),
    outputs=st.lists(tensors(), max_size=2).map(tuple),
    assumptions=st.lists(st.builds(Assumption, names, sites, st.integers(1, 9)), max_size=2).map(tuple),
    root_site=sites,
    metadata=st.dictionaries(names, json_values, max_size=3),
)


@settings(max_examples=50)
@given(graphs)
def test_round_trip(graph: Graph) -> None:
    assert Graph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": "0"}', '{"schema": null}'])
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a tclint graph"):
        Graph.from_json(text)


def test_what_is_missing_is_said() -> None:
    text = make_graph(make_op("relu", "elementwise", {"self": spec(4)}, spec(4))).to_json()
    with pytest.raises(ValueError, match="not a tclint graph: KeyError\\('shape'\\)"):
        Graph.from_json(text.replace('"shape"', '"shapes"'))


def test_unknown_kind_is_refused() -> None:
    text = make_graph(make_op("relu", "elementwise", {"self": spec(4)}, spec(4))).to_json()
    with pytest.raises(ValueError, match="unknown op kind 'magic'"):
        Graph.from_json(text.replace('"elementwise"', '"magic"'))


def long_chain(count: int) -> Graph:
    """Alternating linear layers, norms, activations and residual additions."""
    made: list[Op] = []
    parameters = [Parameter(name, shape, "float32") for name, shape in (("w", (64, 64)), ("g", (64,)))]
    x: Any = spec(32, 64, input_name="x")
    for index in range(count):
        w, g = spec(64, 64, parameter="w"), spec(64, parameter="g")
        name, kind, inputs = (
            ("linear", "linear", {"input": x, "weight": w}),
            ("layer_norm", "norm", {"input": x, "weight": g}),
            ("gelu", "elementwise", {"self": x}),
            ("add", "elementwise", {"self": x, "other": replace(x, producer=max(index - 4, 0))}),
        )[index % 4]
        made.append(make_op(name, kind, inputs, spec(32, 64), index=index))
        x = spec(32, 64, producer=index)
    return make_graph(*made, parameters=tuple(parameters))


def test_five_thousand_ops_lower() -> None:
    graph = long_chain(5000)
    kernels, gaps = lower(graph, "train")
    assert not gaps
    assert len(kernels) > 10_000
    assert forward_flops(graph) == 1250 * 2 * 32 * 64 * 64
