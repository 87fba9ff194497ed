"""`--input` specs: '8,3,224,224', 'int64[8,128]<50257', 'mel=float32[8,80,900]'."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tclint.core.errors import UsageError, closest
from tclint.graph.ops.spec import FLOATING_DTYPES, ITEMSIZE_BYTES

SYNTAX = (
    "write sizes ('8,3,224,224'), a dtype with sizes ('int64[8,128]', with '<50257' for the range), "
    "and 'name=' in front for a keyword argument ('mask=bool[8,128]')"
)

_SHORT_NAMES = {
    "bf16": "bfloat16",
    "double": "float64",
    "float": "float32",
    "fp16": "float16",
    "fp32": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
}
_MAX_DIMS = 64

_SPEC = re.compile(
    r"""
    (?: (?P<name> [^\W\d]\w* ) \s* = \s* )?
    (?: (?P<dtype> [a-z]\w* )? \s* \[ \s* (?P<sizes> [0-9,\s]* ) \] | (?P<bare> [0-9] [0-9,\s]* ) )
    \s* (?: < \s* (?P<below> [0-9]+ ) )?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One tensor that the model is called with."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    name: str | None = None
    """The forward's argument; None: positional, in the order given."""
    below: int | None = None
    """Integers are from 0 up to this number, exclusive."""

    def __str__(self) -> str:
        """The spec as it can be given again."""
        sizes = ",".join(str(size) for size in self.shape)
        name = "" if self.name is None else f"{self.name}="
        below = "" if self.below is None else f"<{self.below}"
        return f"{name}{self.dtype}[{sizes}]{below}"


def parse_input(text: str) -> InputSpec:
    """Read one `--input` spec.

    Raises:
        UsageError: says what is wrong and how a spec is written.
    """
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an input: {SYNTAX}.")
    dtype = match["dtype"] or "float32"
    dtype = _SHORT_NAMES.get(dtype, dtype)
    if dtype not in ITEMSIZE_BYTES:
        known = (*ITEMSIZE_BYTES, *_SHORT_NAMES)
        raise UsageError(f"{dtype!r} in the input {text!r} is not a dtype.{closest(dtype, known)}")
    sizes_text = match["sizes"] if match["sizes"] is not None else match["bare"]
    shape = _parse_sizes(sizes_text, text)
    below = None if match["below"] is None else int(match["below"])
    if below is not None and (dtype in FLOATING_DTYPES or dtype.startswith("complex") or dtype == "bool"):
        raise UsageError(f"'<{below}' in the input {text!r} needs integers: write int64[...]<{below}.")
    return InputSpec(shape=shape, dtype=dtype, name=match["name"], below=below)


def parse_inputs(texts: tuple[str, ...]) -> tuple[InputSpec, ...]:
    """Read all specs of a run.

    Raises:
        UsageError: a spec is malformed, or two have the same name.
    """
    specs = tuple(parse_input(text) for text in texts)
    names = [spec.name for spec in specs if spec.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the input {name!r} was given twice.")
    return specs


def parse_input_set(text: str) -> tuple[InputSpec, ...]:
    """Read one `--input-set`: the specs of all inputs, separated by semicolons.

    Raises:
        UsageError: a spec is malformed, there is none, or two have the same name.
    """
    return parse_inputs(tuple(text.split(";")))


def _parse_sizes(text: str, whole: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if parts[-1] == "":
        parts.pop()  # '[8,]', and '[]' for a scalar
    if any(not part.isdecimal() for part in parts) or len(parts) > _MAX_DIMS:
        raise UsageError(f"{whole!r} is not an input: {SYNTAX}.")
    sizes = tuple(int(part) for part in parts)
    if any(size >= 1 << 48 for size in sizes):
        raise UsageError(f"a size in the input {whole!r} is larger than any tensor.")
    return sizes
