"""Sizes of the matrix work that an operator of a trace asked for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tclint.core.toml import packaged_toml
from tclint.profile.trace import Operator, Shape

OPERATORS = packaged_toml("tclint.profile", "operators.toml")
DTYPES: dict[str, str] = OPERATORS["dtypes"]
"""torch's names of what the profiler records in C++'s."""
_PRODUCTS, _CONVOLUTIONS = (
    frozenset(f"aten::{name}" for name in names) for names in OPERATORS["matrix_work"].values()
)


@dataclass(frozen=True, slots=True)
class ProductSizes:
    """C[M,N] = A[M,K] B[K,N], `batch` times."""

    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def dims(self) -> dict[str, int]:
        return {"M": self.m, "N": self.n, "K": self.k}

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def text(self) -> str:
        """'M 4096, N 1024, K 3137', with the batch where there is one."""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return batch + ", ".join(f"{name} {size}" for name, size in self.dims.items())


def dtype_of(operator: Operator | None) -> str | None:
    """The operands' dtype: that of the last of the operator's floating-point tensors; None where unknown.

    The last, since a product's first argument may be a bias, and under autocast operators that own casts come
    before those that run.
    """
    found = None
    for kind, shape in zip(operator.dtypes, operator.dims, strict=False) if operator else ():
        name = DTYPES.get(kind) if isinstance(kind, str) else None
        if name is not None and shape and name.startswith(("float", "bfloat")):
            found = name
    return found


def tensor_shapes(operator: Operator) -> list[Shape]:
    """The shapes of its tensors, those of lists included; scalars and other arguments left out."""
    shapes: list[Shape] = []
    for shape in operator.dims:
        if shape and isinstance(shape[0], tuple):
            shapes += [inner for inner in shape if inner]
        elif shape:
            shapes.append(shape)  # type: ignore[arg-type]
    return shapes


def product_sizes(operator: Operator | None) -> ProductSizes | None:
    """The sizes of a matrix product; None for other operators, or where sizes were not recorded."""
    if operator is None or operator.name not in _PRODUCTS:
        return None
    shapes = tensor_shapes(operator)
    if operator.name == "aten::linear":
        if len(shapes) < 2 or len(shapes[1]) != 2:
            return None
        x, weight = shapes[0], shapes[1]
        return ProductSizes(prod(x[:-1]), weight[0], weight[1])
    if operator.name == "aten::_addmm_activation":
        shapes = shapes[:3]
    if len(shapes) < 2:
        return None
    a, b = shapes[-2:]
    if len(b) == 1:
        return ProductSizes(prod(a[:-1]), 1, a[-1])
    if len(a) < 2:
        return None
    batch = prod(a[:-2]) if len(a) > 2 else 1
    return ProductSizes(a[-2], b[-1], a[-1], batch)


@dataclass(frozen=True, slots=True)
class ConvolutionSizes:
    """Channels and taps of a convolution."""

    in_channels: int
    out_channels: int
    per_group: int
    """Input channels of one group."""
    taps: tuple[int, ...]

    @property
    def is_depthwise(self) -> bool:
        return self.per_group == 1 and self.in_channels > 1

    @property
    def text(self) -> str:
        """'3 -> 64 channels, 7x7'."""
        taps = "x".join(map(str, self.taps))
        groups = (
            f", {self.in_channels // max(self.per_group, 1)} groups"
            if self.per_group < self.in_channels
            else ""
        )
        return f"{self.in_channels} -> {self.out_channels} channels, {taps}{groups}"


def convolution_sizes(operator: Operator | None) -> ConvolutionSizes | None:
    """The sizes of a convolution or its gradient; None for other operators, or where sizes were not
    recorded."""
    if operator is None:
        return None
    shapes = tensor_shapes(operator)
    if operator.name in _CONVOLUTIONS and len(shapes) >= 2:
        x, weight = shapes[0], shapes[1]
    elif operator.name == "aten::convolution_backward" and len(shapes) >= 3:
        x, weight = shapes[1], shapes[2]  # behind the gradient of the output
    elif operator.name == "aten::cudnn_convolution_backward" and len(shapes) >= 3:
        x, weight = shapes[0], shapes[2]
    elif operator.name == "aten::cudnn_convolution_backward_input" and len(shapes) == 2:
        weight = shapes[1]  # the input's own size is a list of numbers, which are not recorded
        depthwise = weight[1:2] == (1,)
        x = (0, weight[0] if depthwise else weight[1], *weight[2:]) if len(weight) > 2 else ()
    else:
        return None
    if len(weight) < 3 or len(x) != len(weight):
        return None
    return ConvolutionSizes(x[1], weight[0], weight[1], weight[2:])


def sizes_text(operator: Operator) -> str:
    """'M 4096, N 1024, K 3137' of matrix work, else the shapes of at most three arguments."""
    known = product_sizes(operator) or convolution_sizes(operator)
    if known is not None:
        return known.text
    shapes = [
        str([list(one) if isinstance(one, tuple) else one for one in shape])
        for shape in operator.dims
        if shape
    ]
    return ", ".join(shapes[:3]) + (", ..." if len(shapes) > 3 else "")
