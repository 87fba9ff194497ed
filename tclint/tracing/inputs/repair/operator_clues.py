"""What an operator that refused its operands tells about the inputs of the model."""

from __future__ import annotations

import math
from itertools import permutations
from types import FrameType
from typing import Any

import torch

from tclint.tracing.inputs.repair.clues import Clues, sources_of
from tclint.tracing.values.origin import is_weight, tensors_in

_PRODUCTS = frozenset({"_sparse_mm", "addmm", "baddbmm", "bmm", "linear", "matmul", "mm"})
_INDEXED = frozenset(
    {"embedding", "embedding_bag", "one_hot", "gather", "index_select", "index_add", "scatter_add"}
)
_CONVOLUTIONS = frozenset(
    {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"}
)
_NORMS = frozenset({"batch_norm", "group_norm", "instance_norm", "layer_norm"})
_BROADCASTS = frozenset({"add", "sub", "mul", "div", "where", "masked_fill", "cat", "stack", "copy"})


def from_operator(frame: FrameType, clues: Clues) -> None:
    """Read the operator and its operands from the recorder's frame."""
    facts, args, kwargs = (frame.f_locals[name] for name in ("facts", "args", "kwargs"))
    name, tensors = facts.name, tensors_in(args, kwargs)
    if not tensors:
        return
    first, others = tensors[0], tensors[1:]
    if name in _INDEXED:
        indices = others[0] if others else first
        if indices.is_floating_point():
            clues.integers = sources_of(indices)
        elif name == "embedding" and not indices.is_meta:  # more positions than the table has
            clues.add_size(indices, int(indices.max()) + 1, first.shape[0])
    elif name in _CONVOLUTIONS and others:
        _from_convolution(name, first, others[0], args, clues)
    elif name in _PRODUCTS and others:
        _from_product(name, tensors, clues)
    elif name == "einsum" and isinstance(args[0], str):
        _from_einsum(args[0], tensors, clues)
    elif name in _NORMS and others:
        axis, size = (-1, others[0].shape[-1]) if name == "layer_norm" else (1, others[0].numel())
        if first.dim() > 1 and first.shape[axis] != size:
            clues.add_size(first, first.shape[axis], size)
    elif name in _BROADCASTS and others:
        _from_broadcast(first, others[0], clues, is_join=name in ("cat", "stack"))
    elif name in ("view", "reshape", "_unsafe_view"):
        _from_view(first, args[-1], clues)
    elif name == "permute" and isinstance(args[-1], (list, tuple)):
        clues.add_rank(first, len(args[-1]))
    elif name == "split_with_sizes" and all(isinstance(size, int) for size in args[1]):
        axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        clues.add_size(first, first.shape[axis], sum(args[1]))
    elif "pool" in name and first.dim() >= 3:
        clues.is_small = True


def _from_convolution(
    name: str, tensor: torch.Tensor, weight: torch.Tensor, args: tuple[Any, ...], clues: Clues
) -> None:
    more = weight.dim() - tensor.dim()
    if more not in (0, 1):
        clues.add_rank(tensor, weight.dim())
        return
    groups = args[-1] if isinstance(args[-1], int) and len(args) > 6 and "transpose" not in name else 1
    channels = weight.shape[0] if "transpose" in name else weight.shape[1] * groups
    have = tensor.shape[1 - more]
    if have == channels:
        clues.is_small = True
        return
    clues.add_size(tensor, have, channels)
    if more == 1 or have == 1:
        clues.add_rank(tensor, tensor.dim() + 1)


def _from_product(name: str, tensors: list[torch.Tensor], clues: Clues) -> None:
    left, right = tensors[-2:] if name in ("addmm", "baddbmm") else tensors[:2]
    if left.dim() < 2:
        clues.add_rank(left, left.dim() + 1, is_likely=True)
    have = left.shape[-1] if left.dim() else 1
    want = right.shape[-1 if name == "linear" else -2 % right.dim()]
    if have != want:
        if is_weight(left):  # over tokens or nodes in place of features
            clues.add_size(right, want, have)
        clues.add_size(left, have, want)
        if not is_weight(right):
            clues.add_size(right, want, have)
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        clues.add_rank(left, 3 if "bmm" in name else 2)


def _from_einsum(equation: str, tensors: list[torch.Tensor], clues: Clues) -> None:
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    if "." in equation or len(terms) != len(tensors):
        return
    dims: dict[str, list[tuple[torch.Tensor, int]]] = {}
    for letters, tensor in zip(terms, tensors, strict=True):
        clues.add_rank(tensor, len(letters))
        for letter, size in zip(letters, tensor.shape, strict=False):
            dims.setdefault(letter, []).append((tensor, size))
    for (tensor, have), (_, want) in (pair for same in dims.values() for pair in permutations(same, 2)):
        if have != want and not is_weight(tensor):
            clues.add_size(tensor, have, want)


def _from_broadcast(left: torch.Tensor, right: torch.Tensor, clues: Clues, *, is_join: bool) -> None:
    for one, other in zip(reversed(left.shape), reversed(right.shape), strict=False):
        if one != other and 1 not in (one, other):
            for tensor, have, want in ((left, one, other), (right, other, one)):
                if not is_weight(tensor):
                    clues.add_size(tensor, have, want)
    if is_weight(left) != is_weight(right) and left.dim() == right.dim() > 1:
        # Positions without a batch, added to features that have one dim too few.
        weight, other = (left, right) if is_weight(left) else (right, left)
        if weight.shape[0] not in (1, other.shape[0]):
            clues.add_rank(other, other.dim() + 1, is_likely=True)
    if not (is_weight(left) or is_weight(right)):
        clues.add_rank(right, left.dim(), is_likely=is_join)
        clues.add_rank(left, right.dim(), is_likely=is_join)


def _from_view(tensor: torch.Tensor, shape: Any, clues: Clues) -> None:
    sizes = [size for size in shape if isinstance(size, int)] if isinstance(shape, (list, tuple)) else []
    batch, each = (tensor.shape[0] if tensor.dim() else 1), math.prod(tensor.shape[1:])
    rest = [size for index, size in enumerate(sizes) if size != -1 and not (index == 0 and size == batch)]
    wanted = math.prod(rest)
    if wanted > 1 and wanted != each and (-1 not in sizes or sizes[0] == -1):
        clues.add_size(tensor, each, wanted)
