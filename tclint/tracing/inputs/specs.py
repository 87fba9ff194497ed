"""`--input` specs: '8,3,224,224', 'int64[8,128]<50257', "batch[0]['image']=float32[3,64,64]"."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from math import prod
from typing import Any

from tclint.core.errors import UsageError, closest
from tclint.graph.ops.spec import FLOATING_DTYPES, ITEMSIZE_BYTES

SYNTAX = (
    "write sizes ('8,3,224,224'), a dtype with sizes ('int64[8,128]', with '<50257' for the range), "
    "'name=' in front for a keyword argument ('mask=bool[8,128]') or a part of one "
    "(\"batch[0]['image']=float32[3,64,64]\"), and 'name:=' for a value ('size:=(64, 64)')"
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

_NAME = r"""[^\W\d]\w* (?: \[ (?: \d{1,3} | '[^']*' | "[^"]*" ) \] | \. [^\W\d]\w* )*"""
_STEP = re.compile(
    r"""\[ (?: (?P<index> \d+ ) | (?P<key> '[^']*' | "[^"]*" ) ) \] | \.? (?P<word> \w+ )""", re.VERBOSE
)
_VALUE = re.compile(rf"(?P<name> {_NAME} ) \s* := \s* (?P<value> .+ )", re.VERBOSE | re.DOTALL)
_SPEC = re.compile(
    rf"""
    (?: (?P<name> {_NAME} ) \s* = \s* )?
    (?: (?P<dtype> [a-z]\w* )? \s* \[ \s* (?P<sizes> [0-9,\s]* ) \] | (?P<bare> [0-9] [0-9,\s]* ) )
    \s* (?: < \s* (?P<below> [0-9]+ ) )?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One tensor that the model is called with, or one value that is none."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    name: str | None = None
    """The forward's argument, or a part of it: "batch[0]['image']"; None: positional, in the order given."""
    below: int | None = None
    """Integers are from 0 up to this number, exclusive."""
    value: Any = ...
    """A number, a text, None or a container of them instead of a tensor; `...`: a tensor."""

    @property
    def path(self) -> tuple[int | str, ...]:
        """The argument's name, then the indices, keys and '.attributes' that lead to the part."""
        steps: list[int | str] = []
        for step in _STEP.finditer(self.name or ""):
            if step["index"] is not None:
                steps.append(int(step["index"]))
            elif step["key"] is not None:
                steps.append(step["key"][1:-1])
            else:
                steps.append(step[0])
        return tuple(steps)

    def __str__(self) -> str:
        """The spec as it can be given again."""
        if self.value is not ...:
            return f"{self.name}:={self.value!r}"
        sizes = ",".join(str(size) for size in self.shape)
        name = "" if self.name is None else f"{self.name}="
        below = "" if self.below is None else f"<{self.below}"
        return f"{name}{self.dtype}[{sizes}]{below}"


def parse_input(text: str) -> InputSpec:
    """Read one `--input` spec.

    Raises:
        UsageError: says what is wrong and how a spec is written.
    """
    if (given := _VALUE.fullmatch(text.strip())) is not None:
        return InputSpec((), name=given["name"], value=_literal(given["value"], text))
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
    given = [(spec.path, spec.name) for spec in specs if spec.name is not None]
    for path, name in given:
        if sum(other[: len(path)] == path for other, _ in given) > 1:
            raise UsageError(f"the input {name!r} was given twice.")
    return specs


def parse_input_set(text: str) -> tuple[InputSpec, ...]:
    """Read one `--input-set`: the specs of all inputs, separated by semicolons.

    Raises:
        UsageError: a spec is malformed, there is none, or two have the same name.
    """
    return parse_inputs(tuple(text.split(";")))


def _literal(text: str, whole: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = ...
    if value is ...:
        raise UsageError(
            f"{whole!r} is not an input: what follows ':=' is a number, a text, None or a tuple of them."
        )
    return value


def _parse_sizes(text: str, whole: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if parts[-1] == "":
        parts.pop()  # '[8,]', and '[]' for a scalar
    if any(not part.isdecimal() for part in parts) or len(parts) > _MAX_DIMS:
        raise UsageError(f"{whole!r} is not an input: {SYNTAX}.")
    sizes = tuple(int(part) for part in parts)
    if prod(size or 1 for size in sizes) >= 1 << 48:
        raise UsageError(f"the input {whole!r} is larger than any tensor.")
    return sizes
