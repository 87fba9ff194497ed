"""What the recorder assumes where a shape or a branch depends on data that a trace does not have.

Each rule answers one operator on traced tensors. It returns NotImplemented where nothing has to be guessed,
and says every guess through its first argument, so that it reaches the user with its line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tclint.graph.ops import numel
from tclint.tracing.meta_ops.meta_kernels import to_meta
from tclint.tracing.values.assumptions import SELECTED_LEAST, Assumptions
from tclint.tracing.values.operators import Args, Kwargs
from tclint.tracing.values.origin import ensure_origin, origin_of

Guess = Callable[[Assumptions, Any, Args, Kwargs], Any]

GUESSES: dict[str, Guess] = {}

_META = torch.device("meta")
_MASKS = (torch.bool, torch.uint8)


def _guesses(*names: str) -> Callable[[Guess], Guess]:
    def register(rule: Guess) -> Guess:
        for name in names:
            GUESSES[name] = rule
        return rule

    return register


def _empty(shape: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=_META)


def _argument(args: Args, kwargs: Kwargs, position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


def _expected_true(mask: torch.Tensor) -> int:
    """How many elements of a traced mask are taken to be True: all, unless it selects 1 of n choices."""
    origin = origin_of(mask)
    density = origin.density if origin is not None and origin.density is not None else 1.0
    return max(1, int(mask.numel() * density))


def _assume_share(assumptions: Assumptions, what: str, mask: torch.Tensor) -> int:
    count = _expected_true(mask)
    if count == mask.numel() > 1 and assumptions.policy == "least":
        count = max(1, count // SELECTED_LEAST)
        assumptions.add(f"{what}: {count} of {mask.numel()} elements assumed to be selected")
    elif count == mask.numel():
        assumptions.add(f"{what}: all {count} elements assumed to be selected")
    else:
        assumptions.add(f"{what}: {count} of {mask.numel()} elements assumed, spread evenly over choices")
    return count


@_guesses("nonzero", "argwhere")
def _nonzero(assumptions: Assumptions, _function: Any, args: Args, _kwargs: Kwargs) -> Any:
    count = _assume_share(assumptions, "nonzero of traced data", args[0])
    return _empty((count, args[0].dim()))


@_guesses("nonzero_numpy")
def _nonzero_numpy(assumptions: Assumptions, _function: Any, args: Args, _kwargs: Kwargs) -> Any:
    count = _assume_share(assumptions, "nonzero of traced data", args[0])
    return [_empty((count,)) for _ in range(max(args[0].dim(), 1))]


@_guesses("masked_select")
def _masked_select(assumptions: Assumptions, _function: Any, args: Args, _kwargs: Kwargs) -> Any:
    tensor, mask = args[:2]
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    if not mask.is_meta:
        return _empty((int(torch.broadcast_to(mask, shape).sum()),), tensor.dtype)
    count = _assume_share(assumptions, "masked_select by traced data", mask)
    return _empty((max(1, count * numel(shape) // max(1, mask.numel())),), tensor.dtype)


@_guesses("index", "_unsafe_index")
def _index(assumptions: Assumptions, function: Any, args: Args, _kwargs: Kwargs) -> Any:
    tensor, indices = args[:2]
    if not any(isinstance(index, torch.Tensor) and index.dtype in _MASKS for index in indices):
        return NotImplemented
    integers: list[torch.Tensor | None] = []
    for index in indices:
        if index is None:
            integers.append(None)
        elif index.dtype not in _MASKS:
            integers.append(to_meta(index))
        elif index.is_meta:
            count = _assume_share(assumptions, "indexing by a traced mask", index)
            integers.extend(_empty((count,)) for _ in range(index.dim()))
        else:
            integers.extend(to_meta(positions) for positions in index.nonzero().unbind(1))
    return function(to_meta(tensor), integers)


@_guesses("unique_consecutive", "_unique2", "_unique", "unique_dim")
def _unique(assumptions: Assumptions, _function: Any, args: Args, _kwargs: Kwargs) -> Any:
    tensor = args[0]
    # Usually drives a Python loop over groups: a few of them show the work of one.
    count = min(tensor.numel(), 4)
    assumptions.add(f"unique of traced data: {count} distinct values assumed")
    return _empty((count,), tensor.dtype), _empty(tensor.shape), _empty((count,))


@_guesses("repeat_interleave")
def _repeat_interleave(assumptions: Assumptions, function: Any, args: Args, kwargs: Kwargs) -> Any:
    overload = function._overloadname
    if overload not in ("Tensor", "self_Tensor"):
        return NotImplemented
    repeats = args[0] if overload == "Tensor" else args[1]
    count = kwargs.get("output_size")
    tensor, dim = None, 0
    if overload == "self_Tensor":
        tensor = args[0]
        dim = _argument(args, kwargs, 2, "dim", None)
        if dim is None:
            tensor, dim = tensor.reshape(-1), 0
    if count is None:
        if not repeats.is_meta:
            count = int(repeats.sum())
            if tensor is not None and repeats.numel() == 1:
                count *= tensor.shape[dim]
        else:
            count = repeats.numel() if tensor is None or repeats.numel() > 1 else tensor.shape[dim]
            assumptions.add("repeat_interleave by traced counts: one repeat of each element assumed")
    if tensor is None:
        return _empty((count,))
    shape = list(tensor.shape)
    shape[dim] = count
    return _empty(shape, tensor.dtype)


@_guesses("bincount")
def _bincount(assumptions: Assumptions, _function: Any, args: Args, kwargs: Kwargs) -> Any:
    count = max(_argument(args, kwargs, 2, "minlength", 0), 1)
    origin = origin_of(args[0])
    if origin is not None and origin.choices:
        count = max(count, origin.choices)
    assumptions.add(f"bincount of traced data: {count} bins assumed")
    return _empty((count,))


@_guesses("histc")
def _histc(_assumptions: Assumptions, _function: Any, args: Args, kwargs: Kwargs) -> Any:
    return _empty((_argument(args, kwargs, 1, "bins", 100),), args[0].dtype)


@_guesses("_grouped_mm", "_scaled_grouped_mm")
def _grouped_mm(_assumptions: Assumptions, function: Any, args: Args, kwargs: Kwargs) -> Any:
    left, right = args[:2]
    dtype = kwargs.get("out_dtype") or (left.dtype if "scaled" not in function.name() else torch.bfloat16)
    if left.dim() == 2 and right.dim() == 3:
        return _empty((left.shape[0], right.shape[-1]), dtype)
    if left.dim() == 3 and right.dim() == 3:
        return _empty((left.shape[0], left.shape[1], right.shape[-1]), dtype)
    if left.dim() == 3:
        return _empty((left.shape[1], right.shape[-1]), dtype)
    offsets = _argument(args, kwargs, 2, "offs", None)
    groups = offsets.shape[0] if offsets is not None else 1
    return _empty((groups, left.shape[0], right.shape[-1]), dtype)


@_guesses("nms", "qnms")
def _nms(assumptions: Assumptions, _function: Any, args: Args, _kwargs: Kwargs) -> Any:
    count = args[0].shape[0]
    if assumptions.policy == "least":
        count = -(-count // SELECTED_LEAST)
    assumptions.add(f"non-maximum suppression: {count} of {args[0].shape[0]} boxes assumed to be kept")
    return _empty((count,))


@_guesses("equal", "allclose")
def _equal(assumptions: Assumptions, _function: Any, _args: Args, _kwargs: Kwargs) -> Any:
    assumptions.add("comparison of traced tensors: assumed to be equal")
    return True


@_guesses("item", "_local_scalar_dense", "is_nonzero")
def _item(assumptions: Assumptions, function: Any, args: Args, _kwargs: Kwargs) -> Any:
    count = args[0].numel()
    if count != 1 and not assumptions.are_made:  # else the count itself may be a guess
        if "nonzero" in function.name():
            values = "more than one value" if count else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {values} is ambiguous")
        raise RuntimeError(f"a Tensor with {count} elements cannot be converted to Scalar")
    value = assumptions.scalar(args[0])
    return bool(value) if "nonzero" in function.name() else value


@_guesses("one_hot")
def _one_hot(assumptions: Assumptions, _function: Any, args: Args, kwargs: Kwargs) -> Any:
    classes = _argument(args, kwargs, 1, "num_classes", -1)
    origin = origin_of(args[0])
    choices = None if origin is None else origin.choices
    if classes < 0:
        classes = choices or 2
        assumptions.add(f"one_hot without num_classes: {classes} classes assumed")
    output = _empty((*args[0].shape, classes))
    made = ensure_origin(output)
    made.density = 1.0 / classes
    if choices and choices < classes:  # one class more than experts, for tokens that go elsewhere
        made.used = choices / classes
    return output


@_guesses("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(_assumptions: Assumptions, function: Any, args: Args, kwargs: Kwargs) -> Any:
    packed = function._overloadname == "data"
    tensor, hidden = args[0], args[2] if packed else args[1]
    several = isinstance(hidden, (list, tuple))
    bidirectional = _argument(args, kwargs, 8 if packed else 7, "bidirectional", False)
    first = hidden[0] if several else hidden
    size = first.shape[-1] * (2 if bidirectional else 1)
    if packed or not _argument(args, kwargs, 8, "batch_first", False):
        output = _empty((*tensor.shape[:-1], size), tensor.dtype)
    else:
        # The kernels work time-first; batch_first only transposes what they return.
        batch, length = tensor.shape[:2]
        output = _empty((length, batch, size), tensor.dtype).transpose(0, 1)
    states = [_empty(state.shape, state.dtype) for state in (hidden if several else [hidden])]
    return (output, *states)


@_guesses("_pack_padded_sequence")
def _pack(assumptions: Assumptions, _function: Any, args: Args, _kwargs: Kwargs) -> Any:
    tensor, lengths, batch_first = args
    steps, batch = (tensor.shape[1], tensor.shape[0]) if batch_first else tensor.shape[:2]
    if lengths.is_meta:
        assumptions.add("lengths of a packed sequence: all assumed to be full")
        lengths = torch.full((batch,), steps)
    sizes = torch.tensor([int((lengths > step).sum()) for step in range(int(lengths.max()))])
    return _empty((int(lengths.sum()), *tensor.shape[2:]), tensor.dtype), sizes


@_guesses("_pad_packed_sequence")
def _unpack(assumptions: Assumptions, _function: Any, args: Args, _kwargs: Kwargs) -> Any:
    data, sizes, batch_first, _padding, total = args
    steps = max(int(sizes.numel()), total)
    if sizes.is_meta:
        batch = max(1, data.shape[0] // max(1, steps))
        assumptions.add(f"batch of a packed sequence: {batch} assumed")
        lengths = torch.full((batch,), steps)
    else:
        batch = int(sizes[0])
        lengths = torch.tensor([int((sizes > sequence).sum()) for sequence in range(batch)])
    output = _empty((steps, batch, *data.shape[1:]), data.dtype)
    return (output.transpose(0, 1) if batch_first else output), lengths


@_guesses(
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)
def _assertion(_assumptions: Assumptions, _function: Any, _args: Args, _kwargs: Kwargs) -> Any:
    return None
