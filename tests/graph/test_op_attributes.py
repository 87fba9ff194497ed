"""Packed attributes are what was packed, and equal ones one object."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tclint.graph.ops.op_attributes import pack, unpack

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, 1.0, 2.0])
    | st.sampled_from(["", "mean"])
)
_values = _scalars | st.lists(_scalars, max_size=3) | st.lists(st.lists(_scalars, max_size=2), max_size=2)
_attributes = st.dictionaries(st.sampled_from(["dim", "keepdim", "size", "0"]), _values, max_size=3)


class Shared:
    """Hands back the first of equal values."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def __call__(self, value: Any) -> Any:
        return self.known.setdefault(value, value)


@given(_attributes)
def test_what_was_packed_is_unpacked(attributes: dict[str, Any]) -> None:
    packed = pack(attributes, Shared())
    read = unpack(packed) if isinstance(packed, tuple) else packed
    assert list(read.items()) == list(attributes.items())
    assert repr(read) == repr(attributes)  # 1 is not True


@given(_attributes, _attributes)
def test_equal_attributes_are_one_object_and_others_are_not(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    share = Shared()
    packed, other = pack(first, share), pack(second, share)
    if isinstance(packed, tuple) and isinstance(other, tuple):
        assert (packed is other) == (repr(first) == repr(second))


def test_a_list_of_lists_stays_as_it_is() -> None:
    attributes = {"sizes": [[1, 2], [3]]}
    assert pack(attributes, Shared()) is attributes
