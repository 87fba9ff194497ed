"""What an operator that refused its operands tells about the inputs of the model."""

from __future__ import annotations

import itertools
import math
from types import FrameType
from typing import Any

import torch

from tclint.tracing.inputs.repair.clues import Clues, RankClash, SizeClash, clash_of, sources_of
from tclint.tracing.values.origin import is_weight, tensors_in

_PRODUCTS = frozenset({"_sparse_mm", "addmm", "baddbmm", "bmm", "linear", "matmul", "mm", "addbmm"})
_INDEX_ERRORS = frozenset({"embedding", "embedding_bag", "_embedding_bag", "one_hot", "scatter", "gather"})
_BROADCASTS = frozenset(
    {
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "where",
        "masked_fill",
        "bitwise_and",
        "logical_and",
        "lerp",
        "addcmul",
    }
)
_LOSSES = frozenset({"cross_entropy_loss", "nll_loss", "nll_loss2d", "nll_loss_nd"})
_CELLS = frozenset({"gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"})
_UNEVEN = frozenset({"cat", "add", "sub", "mul"})


def from_operator(frame: FrameType, clues: Clues) -> None:
    """Read the operator and its operands from the recorder's frame."""
    facts, args, kwargs = (frame.f_locals[name] for name in ("facts", "args", "kwargs"))
    name, tensors = facts.name, tensors_in(args, kwargs)
    if not tensors:
        return
    first, others = tensors[0], tensors[1:]
    if name in _INDEX_ERRORS and (others or name == "one_hot"):
        indices = others[0] if "embedding" in name else first
        if indices.is_floating_point():
            clues.integers = sources_of(indices)
        elif name == "embedding" and not indices.is_meta:  # more positions than the table has
            clues.sizes.append(SizeClash(int(indices.max()) + 1, first.shape[0]))
        return
    if others and len({tensor.dtype for tensor in tensors}) > 1 and name in (*_PRODUCTS, *_CONVOLUTIONS):
        clues.floats = frozenset().union(
            *(sources_of(tensor) for tensor in tensors if not tensor.is_floating_point())
        )
    if name in _LOSSES and others:
        clues.classes.append((sources_of(others[0]), (first.shape[0], *first.shape[2:])))
    elif name in _CONVOLUTIONS and others:
        _from_convolution(name, first, others[0], args, clues)
    elif name in _PRODUCTS:
        _from_product(name, tensors, clues)
    elif name in _CELLS and len(args) > 2:
        clues.sizes.append(clash_of(first, first.shape[-1], args[2].shape[-1]))
    elif name in ("batch_norm", "group_norm", "instance_norm", "layer_norm") and others:
        axis, size = (-1, others[0].shape[-1]) if name == "layer_norm" else (1, others[0].numel())
        if first.dim() > 1 and first.shape[axis] != size:
            clues.sizes.append(clash_of(first, first.shape[axis], size))
    elif name in _BROADCASTS and others:
        _from_broadcast(tensors[:2], clues)
    elif name in ("cat", "stack") and others:
        clues.is_uneven = any(tensor.dim() >= 4 for tensor in tensors)
        odd = next((tensor for tensor in others if tensor.dim() != first.dim()), None)
        if odd is not None:
            clues.ranks.append(RankClash(first.dim() - odd.dim(), sources_of(odd), is_likely=True))
            clues.ranks.append(RankClash(odd.dim() - first.dim(), sources_of(first), is_likely=True))
        else:
            _from_broadcast(tensors[:2], clues)
    elif name in ("copy", "index_add", "index_copy") and others:
        written = others[-1]
        if written.dim() != first.dim():
            clues.ranks.append(RankClash(first.dim() - written.dim(), sources_of(written), is_likely=True))
        else:
            pairs = zip(written.shape, first.shape, strict=True)
            clues.sizes += [clash_of(written, one, other) for one, other in pairs if one not in (1, other)]
    elif name in ("expand", "expand_as"):
        _from_expand(first, others, args[-1], clues)
    elif name in ("view", "reshape", "_unsafe_view", "unflatten"):
        _from_view(first, args[-1], clues)
    elif name == "permute" and isinstance(args[-1], (list, tuple)) and len(args[-1]) != first.dim():
        clues.ranks.append(RankClash(len(args[-1]) - first.dim(), sources_of(first)))
    elif name == "split_with_sizes" and all(isinstance(size, int) for size in args[1]):
        axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
        clues.sizes.append(clash_of(first, first.shape[axis], sum(args[1])))
    elif "pool" in name and first.dim() >= 3:
        clues.is_small = True
    if name in _UNEVEN and any(tensor.dim() >= 4 for tensor in tensors):
        clues.is_uneven = True


_CONVOLUTIONS = frozenset(
    {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"}
)


def _from_convolution(
    name: str, tensor: torch.Tensor, weight: torch.Tensor, args: tuple[Any, ...], clues: Clues
) -> None:
    more = weight.dim() - tensor.dim()
    if more not in (0, 1):
        clues.ranks.append(RankClash(more, sources_of(tensor)))
        return
    groups = args[-1] if isinstance(args[-1], int) and len(args) > 6 and "transpose" not in name else 1
    channels = weight.shape[0] if "transpose" in name else weight.shape[1] * groups
    have = tensor.shape[1 - more]
    if have != channels:
        clues.sizes.append(clash_of(tensor, have, channels))
        if more == 1 or have == 1:
            clues.ranks.append(RankClash(1, sources_of(tensor)))
    else:
        clues.is_small = True
        small = tuple(
            back for back in (-1, -2) if tensor.shape[back] < weight.shape[back] and weight.dim() > 3
        )
        clues.small_axes = small or clues.small_axes


def _from_product(name: str, tensors: list[torch.Tensor], clues: Clues) -> None:
    left, right = tensors[-2:] if name in ("addmm", "baddbmm") else tensors[:2]
    if left.dim() < 2:
        clues.ranks.append(RankClash(1, sources_of(left), is_likely=True))
    have, want = (
        left.shape[-1] if left.dim() else 1,
        right.shape[-1 if name == "linear" else -2 % right.dim()],
    )
    if have != want:
        clues.sizes.append(clash_of(left, have, want))
        if not is_weight(right):
            clues.sizes.append(clash_of(right, want, have))
    elif name in ("bmm", "baddbmm") and left.shape[0] != right.shape[0]:
        clues.sizes.append(clash_of(left, left.shape[0], right.shape[0]))
    if name in ("mm", "addmm") and left.dim() != 2:
        clues.ranks.append(RankClash(2 - left.dim(), sources_of(left)))
    if name in ("bmm", "baddbmm") and left.dim() != 3:
        clues.ranks.append(RankClash(3 - left.dim(), sources_of(left)))
    # A matrix product over tokens or nodes in place of features: the weight stands on the left.
    if name in ("_sparse_mm", "bmm", "matmul", "mm") and is_weight(left) and have != want:
        clues.sizes.insert(0, clash_of(right, want, have))
        if right.dim() == 2:
            clues.rows.append(clash_of(right, want, have))


def _from_broadcast(tensors: list[torch.Tensor], clues: Clues) -> None:
    left, right = tensors
    for one, other in zip(reversed(left.shape), reversed(right.shape), strict=False):
        if one != other and 1 not in (one, other):
            pair = [clash_of(left, one, other), clash_of(right, other, one)]
            if not pair[0].sources or (is_weight(left) and not is_weight(right)):
                pair.reverse()
            clues.sizes += [clash for clash in pair if clash.sources]
    if left.dim() == right.dim() and left.dim() > 1 and is_weight(left) != is_weight(right):
        # Positions without a batch, added to features that have one dim too few.
        weight, other = (left, right) if is_weight(left) else (right, left)
        if weight.shape[0] not in (1, other.shape[0]):
            clues.ranks.append(RankClash(1, sources_of(other), is_likely=True))
    if left.dim() != right.dim() and not (is_weight(left) or is_weight(right)):
        clues.ranks.append(RankClash(right.dim() - left.dim(), sources_of(left)))
        clues.ranks.append(RankClash(left.dim() - right.dim(), sources_of(right)))


def _from_expand(tensor: torch.Tensor, others: list[torch.Tensor], sizes: Any, clues: Clues) -> None:
    """Dims of one element alone can be expanded."""
    wanted = list(others[0].shape if others else sizes)
    sources = sources_of(tensor)
    if len(wanted) < tensor.dim():
        # A constant is as it is: what it is expanded to is too small.
        more = len(wanted) - tensor.dim()
        clues.ranks.append(RankClash(more if sources else -more, sources))
        return
    for have, want in zip(reversed(tensor.shape), reversed(wanted), strict=False):
        if have not in (1, want) and isinstance(want, int) and want != -1:
            # The sizes asked for are mostly those of another tensor, which is not known here.
            clues.sizes += [clash_of(tensor, have, want)] if sources else []
            clues.sizes.append(SizeClash(want, have))


def _from_view(tensor: torch.Tensor, shape: Any, clues: Clues) -> None:
    sizes = [size for size in shape if isinstance(size, int)] if isinstance(shape, (list, tuple)) else []
    if not sizes:
        return
    # Sizes that came from the tensor itself and those that a grid of them should have covered.
    for first, second in itertools.pairwise(sizes):
        for size in tensor.shape[1:]:
            if second > 1 and first == size // second and first * second != size:
                clues.divisors.append((size, second))
    batch = tensor.shape[0] if tensor.dim() else 1
    each = math.prod(tensor.shape[1:])
    rest = [size for index, size in enumerate(sizes) if size != -1 and not (index == 0 and size == batch)]
    wanted = math.prod(rest)
    if wanted > 1 and wanted != each:
        if -1 not in sizes or sizes[0] == -1:
            clues.sizes.append(clash_of(tensor, each, wanted))
        for size in tensor.shape[1:]:
            if -1 in sizes[1:] and size not in sizes and wanted > 1 and each % wanted:
                clues.divisors.append((size, wanted))
