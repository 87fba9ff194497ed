"""Attentions that a traced program writes out: a product, a softmax over it, a product with the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tclint.profile.kernel_names import kernel_name
from tclint.profile.sizes import ProductSizes, product_sizes, tensor_shapes
from tclint.profile.trace import Kernel, Operator

_BETWEEN = 12
"""Kernels between the first product and the softmax, or the softmax and the second: scale, mask, casts."""


@dataclass(frozen=True, slots=True)
class WrittenAttention:
    """One call, with the kernels that a fused attention would replace."""

    scores: ProductSizes
    """Of Q K^T: M queries, N keys, K columns of a head; batch counts heads."""
    operator: Operator
    """Of the first product."""
    kernels: tuple[Kernel, ...]
    """From what makes the operands of the first product contiguous to the second product."""
    backward: tuple[Kernel, ...] = ()
    """Those of its gradients, where the trace ties them to it."""

    @property
    def time_us(self) -> float:
        return sum(kernel.time_us for kernel in (*self.kernels, *self.backward))


def written_attentions(kernels: Sequence[Kernel]) -> list[WrittenAttention]:
    """Every attention written out in the forward pass of a trace.

    Args:
        kernels: in the order in which they ran.
    """
    launched = sorted(
        (kernel for kernel in kernels if kernel.operator is not None and kernel.launch_us is not None),
        key=lambda kernel: kernel.launch_us or 0.0,
    )
    found = list(_forward(launched))
    by_origin: dict[int, list[Kernel]] = {}
    for kernel in launched:
        assert kernel.operator is not None
        if kernel.operator.is_backward:
            by_origin.setdefault(id(kernel.operator.origin), []).append(kernel)
    attentions = []
    for attention in found:
        operators = (kernel.operator for kernel in attention.kernels if kernel.operator is not None)
        own = dict.fromkeys(id(one) for operator in operators for one in operator.chain())
        backward = tuple(kernel for origin in own for kernel in by_origin.get(origin, ()))
        attentions.append(replace(attention, backward=backward))
    return attentions


def _forward(launched: Sequence[Kernel]) -> Iterator[WrittenAttention]:
    at = 0
    while at < len(launched):
        first = launched[at].operator
        scores = product_sizes(first)
        end = None
        if scores is not None and first is not None and not first.is_backward and _is_product(launched[at]):
            end = _second_product(launched, at, scores)
        if end is None or scores is None or first is None:
            at += 1
            continue
        begin = at
        # Operands are made contiguous right before, inside the same call of matmul.
        outer = _outermost_matmul(first)
        while begin > 0 and outer is not None and _is_inside(launched[begin - 1], outer):
            begin -= 1
        yield WrittenAttention(scores, first, tuple(launched[begin : end + 1]))
        at = end + 1


def _second_product(launched: Sequence[Kernel], at: int, scores: ProductSizes) -> int | None:
    """Where the product with the softmax's result ends; None where there is none."""
    softmax = None
    for index in range(at + 1, min(at + 2 * _BETWEEN, len(launched))):
        kernel = launched[index]
        kind = kernel_name(kernel.name).kind
        if kind == "softmax" and softmax is None:
            if not _is_over(kernel.operator, scores):
                return None
            softmax = index
        elif _is_product(kernel) and kernel.operator is not launched[at].operator:
            sizes = product_sizes(kernel.operator)
            fits = sizes is not None and (sizes.batch, sizes.m, sizes.k) == (scores.batch, scores.m, scores.n)
            if softmax is None or not fits:
                return None
            end = index
            while end + 1 < len(launched) and launched[end + 1].operator is kernel.operator:
                end += 1
            return end
    return None


def _is_product(kernel: Kernel) -> bool:
    return kernel_name(kernel.name).kind == "product"


def _is_over(softmax: Operator | None, scores: ProductSizes) -> bool:
    shapes = tensor_shapes(softmax) if softmax is not None else []
    return (
        bool(shapes) and len(shapes[0]) >= 2 and shapes[0][-1] == scores.n and shapes[0][-2] in (scores.m, 1)
    )


def _outermost_matmul(operator: Operator) -> Operator | None:
    return next((one for one in reversed(list(operator.chain())) if one.name == "aten::matmul"), None)


def _is_inside(kernel: Kernel, operator: Operator) -> bool:
    return kernel.operator is not None and any(one is operator for one in kernel.operator.chain())
