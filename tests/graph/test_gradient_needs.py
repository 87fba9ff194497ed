"""Which inputs get a gradient: from trainable parameters forward, from the outputs backward."""

from __future__ import annotations

from typing import Any

from graph_support import make_op, spec

from tclint.graph.lowering.gradients import gradient_needs
from tclint.graph.ops import Graph, Op, Parameter, TensorSpec

PARAMETERS = (
    Parameter("trained", (4, 4), "float32", aliases=("tied",)),
    Parameter("frozen", (4, 4), "float32", trainable=False),
    Parameter("buffer", (4, 4), "float32", is_buffer=True),
)


def of(source: int | str) -> TensorSpec:
    """The output of an op, or a parameter or input of that name."""
    if isinstance(source, int):
        return spec(4, 4, producer=source)
    if source == "x":
        return spec(4, 4, input_name="x")
    return spec(4, 4, parameter=source)


def ops(*rows: tuple[Any, ...]) -> list[Op]:
    """Rows of (name, sources) or (name, sources, fields of the op)."""
    made = []
    for index, (name, sources, *rest) in enumerate(rows):
        fields = {"kind": "elementwise", **(rest[0] if rest else {})}
        dtype = fields.pop("dtype", "float32")
        inputs = {str(position): of(source) for position, source in enumerate(sources)}
        made.append(make_op(name, fields.pop("kind"), inputs, spec(4, 4, dtype=dtype), index=index, **fields))
    return made


def needs(*rows: tuple[Any, ...], outputs: tuple[int, ...] | None = None) -> list[tuple[bool, ...]]:
    made = ops(*rows)
    last = outputs if outputs is not None else (len(made) - 1,)
    return list(gradient_needs(Graph(tuple(made), PARAMETERS, outputs=tuple(of(index) for index in last))))


def test_parameters_train_and_inputs_buffers_and_frozen_ones_do_not() -> None:
    assert needs(("mul", ("x", "trained")), ("mul", (0, "frozen")), ("mul", (1, "buffer"))) == [
        (False, True),
        (True, False),
        (True, False),
    ]


def test_aliases_of_tied_parameters_train() -> None:
    assert needs(("mul", ("x", "tied"))) == [(False, True)]


def test_nothing_below_the_first_trained_parameter() -> None:
    assert needs(("mul", ("x", "frozen")), ("relu", (0,)), ("mul", (1, "trained"))) == [
        (False, False),
        (False,),
        (False, True),
    ]


def test_cuts() -> None:
    """detach, no_grad, integers and comparisons end a gradient."""
    for name, fields in (
        ("detach", {"kind": "view"}),
        ("relu", {"differentiable": False}),
        ("argmax", {"dtype": "int64"}),
        ("relu", {"dtype": "int64"}),
        ("gt", {"dtype": "bool"}),
    ):
        rows = (("mul", ("x", "trained")), (name, (0,), fields), ("mul", (1, "trained")))
        assert needs(*rows) == [(False, False), (False,), (False, True)], name


def test_only_what_reaches_an_output() -> None:
    rows = (("mul", ("x", "trained")), ("relu", (0,)), ("exp", (0,)))
    assert needs(*rows, outputs=(1,)) == [(False, True), (True,), (False,)]
    assert needs(*rows, outputs=(1, 2)) == [(False, True), (True,), (True,)]


def test_unknown_outputs_count_all() -> None:
    assert needs(("mul", ("x", "trained")), ("relu", (0,)), outputs=()) == [(False, True), (True,)]


def test_write_through_a_view_reaches_readers_of_the_whole() -> None:
    rows = (
        ("zeros_like", ("x",), {"kind": "copy"}),
        ("slice", (0,), {"kind": "view"}),
        ("mul", ("x", "trained")),
        ("copy", (1, 2), {"kind": "copy", "in_place": True}),
        ("relu", (0,)),
    )
    assert needs(*rows) == [(False,), (False,), (False, True), (False, True), (True,)]


def test_parts_of_a_composite_are_reached_through_it() -> None:
    """Whether the parts come before the composite or after it."""
    after = needs(
        ("einsum", ("x", "trained")), ("bmm", ("x", "trained"), {"parent": 0}), ("relu", (0,)),
    )  # fmt: skip
    assert after == [(False, True), (False, True), (True,)]
    before = needs(
        ("bmm", ("x", "trained"), {"parent": 1}), ("einsum", ("x", "trained")), ("relu", (1,)),
    )  # fmt: skip
    assert before == [(False, True), (False, True), (True,)]
