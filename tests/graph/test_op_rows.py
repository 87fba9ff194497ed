"""Rows of numbers are what was written, packed or not."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tclint.graph.ops.op_rows import OpRows

_NUMBER = st.integers(0, 2**32 - 1)
_ROW = st.tuples(_NUMBER, _NUMBER)


@st.composite
def _changes(draw: st.DrawFn) -> list[tuple[str, object]]:
    change = st.one_of(
        st.tuples(st.just("append"), st.tuples(_ROW, st.integers(1, 700))),
        st.tuples(st.just("set"), st.tuples(st.floats(0, 1, exclude_max=True), _ROW)),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("read"), st.floats(0, 1, exclude_max=True)),
    )
    return draw(st.lists(change, max_size=20))


@given(_changes())
def test_rows_are_those_of_a_list(changes: list[tuple[str, object]]) -> None:
    rows, expected = OpRows(), []
    for what, value in changes:
        match what, value:
            case "append", (row, times):
                for place in range(times):
                    made = row[0], (row[1] + place) % 2**32
                    rows.append(*made)
                    expected.append(made)
            case "set", (share, row) if expected:
                rows[int(share * len(expected))] = row
                expected[int(share * len(expected))] = row
            case "truncate", share:
                del expected[int(share * len(expected)) :]
                rows.truncate(len(expected))
            case "read", share if expected:
                assert rows[int(share * len(expected))] == expected[int(share * len(expected))]
        assert rows.count == len(expected)
    numbers = [number for row in expected for number in row]
    assert list(rows.numbers()) == numbers
    assert list(OpRows.of(numbers).numbers()) == numbers


def test_rows_that_repeat_take_little_memory() -> None:
    rows = OpRows()
    for index in range(512 * 40 + 1):
        rows.append(index % 15, index // 600)
    assert sum(map(len, rows._packed)) < 512 * 40 // 2  # half a byte each, of eight
