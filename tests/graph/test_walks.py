"""Which elementwise kernels load several elements at once, and what the others work out."""

from __future__ import annotations

import pytest

from tclint.graph.lowering.walks import concatenation, walk
from tclint.graph.lowering.work import Walk
from tclint.graph.ops import TensorSpec, channels_last_strides, contiguous_strides

SHAPE = (8, 96, 32, 64)
SIZE = 8 * 96 * 32 * 64


def tensor(
    shape: tuple[int, ...] = SHAPE, strides: tuple[int, ...] | None = None, name: str = "x"
) -> TensorSpec:
    return TensorSpec(shape, "float16", strides or contiguous_strides(shape), input_name=name)


LAST = tensor(strides=channels_last_strides(SHAPE))
TRANSPOSED = tensor(strides=(96 * 32 * 64, 32 * 64, 1, 32))


@pytest.mark.parametrize(
    ("result", "operands"),
    [
        (tensor(), [tensor(), tensor()]),
        (LAST, [LAST, LAST]),
        (TRANSPOSED, [TRANSPOSED]),
        (tensor(), [tensor(), TensorSpec((), "float16", (), value=2.0)]),
        (tensor((4, 1, 8)), [tensor((4, 1, 8), (8, 999, 1))]),
        (tensor((0, 3)), [tensor((0, 3), (1, 0))]),
    ],
)
def test_what_lies_alike_is_loaded_several_at_once(result: TensorSpec, operands: list[TensorSpec]) -> None:
    assert walk(result, operands) is None


@pytest.mark.parametrize(
    ("result", "operands", "expected"),
    [
        # A dim that no operand distinguishes is merged; what fits the L1 draws nothing from the L2.
        (tensor(), [tensor(), tensor((1, 96, 1, 1))], Walk(SIZE, 3, 3, 4)),
        (tensor(), [tensor(), tensor((64,))], Walk(SIZE, 3, 2, 4)),
        (tensor(), [TensorSpec((), "float16", (), input_name="scale")], Walk(SIZE, 2, 1, 2)),
        # A warp's 32 elements of 2 bytes are two sectors where they lie together.
        (tensor(), [TRANSPOSED], Walk(SIZE, 2, 3, 2 + 32)),
        (tensor(), [tensor(strides=(96 * 32 * 64, 64, 96 * 64, 1))], Walk(SIZE, 2, 4, 2 + 2)),
        (LAST, [LAST, tensor()], Walk(SIZE, 3, 3, 2 + 2 + 32)),
    ],
)
def test_the_others_work_out_every_place(
    result: TensorSpec, operands: list[TensorSpec], expected: Walk
) -> None:
    assert walk(result, operands) == expected


def test_concatenations() -> None:
    whole, half = tensor((64, 128)), tensor((64, 64))
    assert concatenation(whole, [half, half], -1) == Walk(64 * 128, 1, 2, 4)
    assert concatenation(whole, [tensor((64, 64), (128, 1)), half], 1) == Walk(64 * 128, 2, 2, 4)
    assert concatenation(tensor((2, 64, 64)), [half, half], 0) == Walk(2 * 64 * 64, 1, 1, 4)
    assert concatenation(tensor((0, 64)), [], 0) is None
