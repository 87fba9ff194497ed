"""`--input` specs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tclint.core.errors import UsageError
from tclint.graph.ops.spec import ITEMSIZE_BYTES
from tclint.tracing.inputs.specs import InputSpec, parse_input, parse_inputs

INTEGERS = sorted(name for name in ITEMSIZE_BYTES if name.startswith(("int", "uint")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8,3,224,224", InputSpec((8, 3, 224, 224))),
        (" 8, 3 ", InputSpec((8, 3))),
        ("16", InputSpec((16,))),
        ("[8,3]", InputSpec((8, 3))),
        ("float16[]", InputSpec((), "float16")),
        ("int64[8,128]<50257", InputSpec((8, 128), "int64", None, 50257)),
        ("mel=float32[8,80,900]", InputSpec((8, 80, 900), "float32", "mel")),
        ("x = half[2, 4]", InputSpec((2, 4), "float16", "x")),
        ("mask=bool[8,128]", InputSpec((8, 128), "bool", "mask")),
        ("n=4,5", InputSpec((4, 5), "float32", "n")),
    ],
)
def test_accepted(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "8,,3", "8,-1", "float32", "float32[8", "a.b=8", "int64[8]<", "8x3", "=8", "[8]3", "1.5"],
)
def test_rejected_with_the_syntax(text: str) -> None:
    with pytest.raises(UsageError, match=r"write sizes \('8,3,224,224'\)"):
        parse_input(text)


def test_unknown_dtype_names_the_closest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'float16'"):
        parse_input("flaot16[8]")


@pytest.mark.parametrize("text", ["float32[8]<5", "8,3<5", "bool[4]<2"])
def test_a_range_needs_integers(text: str) -> None:
    with pytest.raises(UsageError, match="integers"):
        parse_input(text)


def test_absurd_size() -> None:
    with pytest.raises(UsageError, match="larger than any tensor"):
        parse_input(f"{1 << 60},3")


def test_one_name_twice() -> None:
    with pytest.raises(UsageError, match="'x' was given twice"):
        parse_inputs(("x=8", "8,3", "x=4"))


@st.composite
def specs(draw: st.DrawFn) -> InputSpec:
    dtype = draw(st.sampled_from(sorted(ITEMSIZE_BYTES)))
    below = draw(st.none() | st.integers(0, 1 << 40)) if dtype in INTEGERS else None
    name = draw(st.none() | st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True))
    shape = tuple(draw(st.lists(st.integers(0, 1 << 40), max_size=6)))
    return InputSpec(shape, dtype, name, below)


@given(specs())
def test_every_spec_can_be_given_again(spec: InputSpec) -> None:
    assert parse_input(str(spec)) == spec


@given(st.text(alphabet="0123456789,[]=<abcfloatint64 \t.-", max_size=24))
def test_any_text_is_a_spec_or_a_usage_error(text: str) -> None:
    try:
        spec = parse_input(text)
    except UsageError:
        return  # any other exception fails
    assert all(size >= 0 for size in spec.shape)
