"""The order of axes, beside torch's."""

from __future__ import annotations

from typing import Any

import pytest

from tclint.graph.ops import Op, TensorSpec
from tclint.graph.ops.axis_order import PERMUTES, axis_order

torch = pytest.importorskip("torch")

OF_MATRICES = {"t", "numpy_T", "mT", "mH", "matrix_H", "adjoint"}
CALLS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("permute", (2, 3, 4), {"dims": [2, 0, -2]}),
    ("transpose", (2, 3, 4), {"dim0": 0, "dim1": -1}),
    ("transpose", (), {"dim0": 0, "dim1": -1}),
    ("swapdims", (2, 3, 4), {"dim0": 1, "dim1": 2}),
    ("swapaxes", (2, 3, 4), {"axis0": -3, "axis1": 1}),
    ("movedim", (2, 3, 4, 5), {"source": [0, -1], "destination": [2, 0]}),
    ("moveaxis", (2, 3, 4), {"source": 0, "destination": 2}),
    *((name, (2, 3), {}) for name in sorted(OF_MATRICES)),
    ("mT", (5, 2, 3), {}),
]


@pytest.mark.parametrize(("name", "shape", "attributes"), CALLS)
def test_as_in_torch(name: str, shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    tensor = torch.empty(shape, device="meta")
    given = {"numpy_T": "T", "matrix_H": "H"}.get(name, name)
    result = getattr(tensor, given)
    result = result(*attributes.values()) if callable(result) else result
    order = axis_order(Op(0, name, "view", (TensorSpec(shape, "float32"),), (), attributes=attributes))
    assert order is not None
    assert tuple(tensor.stride()[axis] for axis in order) == result.stride()


def test_every_operator_of_the_list_is_tried() -> None:
    assert {name for name, _, _ in CALLS} == PERMUTES
