"""The compact log of a trace's operators reads back as what was written."""

from __future__ import annotations

import dataclasses
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tclint.graph.lowering.gradients import composites
from tclint.graph.ops import Graph, Op, Site, TensorSpec
from tclint.graph.ops.op import OP_KINDS, Cast, Checkpoint
from tclint.graph.ops.op_attributes import pack
from tclint.graph.ops.op_log import OpLog

_PATHS = ["", "layers", "layers.0", "layers.01", "layers.1.fc"]
_SITES = [None, Site("a.py", 1, "forward"), Site("a.py", 2), Site("b.py", 1)]
_ATTRIBUTES: list[dict[str, Any]] = [{}, {"dim": 1}, {"dim": True}, {"sizes": [[1, 2], [3]]}]
_NAMES = ["", "fc.weight", "layers.0.weight", "layers.01.weight", "layers.1.fc.bias", "layers", "layers.1"]
_sizes = st.lists(st.sampled_from([1, 8, 300]), max_size=3).map(tuple)


@st.composite
def _specs(draw: st.DrawFn, index: int) -> TensorSpec:
    return TensorSpec(
        draw(_sizes),
        draw(st.sampled_from(["float32", "int64"])),
        draw(st.none() | _sizes),
        draw(st.none() | st.sampled_from(_NAMES)),
        draw(st.none() | st.integers(0, index)),
        draw(st.integers(0, 2)),
        draw(st.sampled_from([None, "x"])),
        draw(st.booleans()),
    )


@st.composite
def _ops(draw: st.DrawFn, index: int) -> Op:
    site = st.sampled_from(_SITES)
    return Op(
        index=index,
        name=draw(st.sampled_from(["add", "linear"])),
        kind=draw(st.sampled_from(sorted(OP_KINDS))),
        inputs=tuple(draw(st.lists(_specs(index), max_size=3))),
        outputs=tuple(draw(st.lists(_specs(index), max_size=2))),
        input_names=draw(st.sampled_from([(), ("self",), ("tensors[0]", "tensors[1]")])),
        attributes=draw(st.sampled_from(_ATTRIBUTES)),
        module_path=draw(st.sampled_from(_PATHS)),
        module_type=draw(st.sampled_from(["", "Linear"])),
        construct_site=draw(site),
        construct_library_site=draw(site),
        call_site=draw(site),
        call_library_site=draw(site),
        parent=draw(st.integers(0, index - 1)) if index and draw(st.booleans()) else None,
        in_place=draw(st.booleans()),
        differentiable=draw(st.booleans()),
        has_own_backward=draw(st.booleans()),
        checkpoint=draw(st.none() | st.builds(Checkpoint, st.integers(0, 2), st.booleans())),
        autocast_disabled=draw(st.booleans()),
        operator=draw(st.sampled_from(["aten::add.Tensor", "aten::linear"])),
        casts=draw(st.sampled_from([(), (Cast((2,), "float32", "float16", "fc.weight"),)])),
    )


def _written(ops: list[Op], *, packs: bool = False) -> OpLog:
    log, known = OpLog(), dict[Any, Any]()
    for op in ops:
        assert log.start() == op.index
    for op in reversed(ops):  # composites end after their parts
        _put(log, op, known if packs else None)
    return log


def _put(log: OpLog, op: Op, known: dict[Any, Any] | None = None) -> None:
    fields = {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}
    del fields["direction"]
    if known is not None:
        fields["attributes"] = pack(op.attributes, lambda value: known.setdefault(value, value))
    log.put(fields.pop("index"), **fields)


@given(st.data())
def test_what_was_written_is_read(data: st.DataObject) -> None:
    ops = [data.draw(_ops(index)) for index in range(data.draw(st.integers(0, 12)))]
    log = _written(ops, packs=data.draw(st.booleans()))
    assert list(log.each()) == ops
    assert [log.get(index) for index in range(len(ops))] == ops
    in_short, whole = Graph(ops=log), Graph(ops=tuple(ops))
    assert composites(in_short) == composites(whole)
    assert Graph.from_json(in_short.to_json()) == whole
    assert in_short == whole
    assert whole == in_short
    assert (len(log), list(log), list(log.each())) == (len(ops), ops, ops)


def test_true_is_not_one() -> None:
    one, true = (_linear(index, {"keepdim": value}) for index, value in enumerate((1, True)))
    log = _written([one, true])
    assert [op.attributes["keepdim"] is True for op in log] == [False, True]


def test_an_operator_that_runs_is_none() -> None:
    log = OpLog()
    assert (log.start(), log.start()) == (0, 1)
    _put(log, _linear(1, {}))
    assert log.get(0) is None
    assert [op.index for op in log.each()] == [1]
    _put(log, _linear(0, {}))
    assert [op.index for op in log] == [0, 1]


def test_a_repeated_layer_is_kept_once() -> None:
    log, attributes = OpLog(), {"dim": 1}
    layers = 3000
    for layer in range(layers):
        path = f"layers.{layer}"
        weight = TensorSpec((8, 8), "float32", (8, 1), f"{path}.weight")
        given = TensorSpec((2, 8), "float32", (8, 1), None, layer - 1 if layer else None)
        made = TensorSpec((2, 8), "float32", (8, 1), None, layer)
        log.start()
        _put(
            log,
            dataclasses.replace(
                _linear(layer, attributes), inputs=(given, weight), outputs=(made,), module_path=path
            ),
        )
    assert len(log.to_json()["patterns"]) == 2  # the first layer, and all others
    assert [op.inputs[1].parameter for op in log[-2:]] == [
        f"layers.{layers - 2}.weight",
        "layers.2999.weight",
    ]
    assert [op.inputs[0].producer for op in log[:3]] == [None, 0, 1]


def _linear(index: int, attributes: dict[str, Any]) -> Op:
    return Op(index, "linear", "linear", (), (), attributes=attributes)
