"""`--input` specs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tclint.core.errors import TargetError, UsageError
from tclint.graph.ops.spec import ITEMSIZE_BYTES
from tclint.tracing.inputs.given import inputs_from_specs
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
        ("batch.x=4,5", InputSpec((4, 5), "float32", "batch.x")),
        ("images[0]['rgb']=4,5", InputSpec((4, 5), "float32", "images[0]['rgb']")),
        ("size := (64, 48)", InputSpec((), name="size", value=(64, 48))),
        ("task[1]:='depth'", InputSpec((), name="task[1]", value="depth")),
        ("mask:=None", InputSpec((), name="mask", value=None)),
    ],
)
def test_accepted(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "8,,3",
        "8,-1",
        "float32",
        "float32[8",
        "a.=8",
        "a[x]=8",
        "a[]=8",
        "int64[8]<",
        "8x3",
        "=8",
        "[8]3",
        "1.5",
    ],
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
    with pytest.raises(UsageError, match="larger than any tensor"):
        parse_input(f"{1 << 30},{1 << 30}")


@pytest.mark.parametrize("text", ["x:=", "x:=...", "x:=open('a')", "x:=(1,"])
def test_a_value_is_a_literal(text: str) -> None:
    with pytest.raises(UsageError, match=r"what follows ':='|write sizes"):
        parse_input(text)


@pytest.mark.parametrize("texts", [("x=8", "x[0]=8"), ("x.a[0]=8", "x.a[0]:=8"), ("x['a']=8", 'x["a"]=8')])
def test_one_part_twice(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="was given twice"):
        parse_inputs(texts)


def test_parts_make_lists_dicts_and_objects() -> None:
    texts = (
        "batch[0]['image']=3,8",
        "batch[0]['size']:=(64, 48)",
        "batch[1]['image']=3,9",
        "x.pos=5,3",
        "flag:=True",
    )
    made = inputs_from_specs(parse_inputs(texts)).kwargs
    assert [sorted(item) for item in made["batch"]] == [["image", "size"], ["image"]]
    assert made["batch"][0]["size"] == (64, 48)
    assert tuple(made["batch"][1]["image"].shape) == (3, 9)
    assert tuple(made["x"].pos.shape) == (5, 3)
    assert made["flag"] is True


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("x[0]=8", "x[2]=8"), "none is left out"),
        (("x[0]=8", "x['a']=8"), "not several of these"),
        (("x.a=8", "x['b']=8"), "not several"),
    ],
)
def test_parts_that_fit_no_container(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(TargetError, match=said):
        inputs_from_specs(parse_inputs(texts))


def test_one_name_twice() -> None:
    with pytest.raises(UsageError, match="'x' was given twice"):
        parse_inputs(("x=8", "8,3", "x=4"))


_VALUES = st.recursive(
    st.none() | st.integers() | st.booleans() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3),
    max_leaves=4,
)


@st.composite
def specs(draw: st.DrawFn) -> InputSpec:
    dtype = draw(st.sampled_from(sorted(ITEMSIZE_BYTES)))
    below = draw(st.none() | st.integers(0, 1 << 40)) if dtype in INTEGERS else None
    part = r"\[[0-9]{1,3}\]|\['[^'\n]*'\]|\[\"[^\"\n]*\"\]|\.[a-z_][a-z0-9_]*"
    name = draw(st.none() | st.from_regex(rf"[a-z_][a-z0-9_]{{0,9}}({part}){{0,3}}", fullmatch=True))
    if name is not None and draw(st.booleans()):
        return InputSpec((), name=name, value=draw(_VALUES))
    shape = tuple(draw(st.lists(st.integers(0, 1 << 7), max_size=6)))
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
