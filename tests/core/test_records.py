"""Copies of records have the new values, the others as they were, and no fields of their own."""

from __future__ import annotations

import dataclasses

import pytest

from tclint.core.records import replace
from tclint.graph.ops import Op, TensorSpec

SPEC = TensorSpec((8, 4), "float32", (4, 1), parameter="weight")
OP = Op(3, "linear", "linear", (SPEC,), (SPEC,), attributes={"a": 1}, module_path="head")


@pytest.mark.parametrize(
    ("record", "values"), [(SPEC, {"dtype": "float16"}), (OP, {"inputs": (), "index": 4}), (OP, {})]
)
def test_a_copy_is_that_of_the_standard_library(record: object, values: dict[str, object]) -> None:
    before = dataclasses.replace(record)  # type: ignore[type-var]
    assert replace(record, **values) == dataclasses.replace(record, **values)  # type: ignore[type-var]
    assert record == before


def test_fields_that_there_are_not_are_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        replace(SPEC, colour="red")  # type: ignore[call-arg]
