"""What traced tensors probably hold: which indices, how many True, which counts.

Routing code reads counts back to Python and slices by them, so a guess has to add up: as many tokens over all
experts as there are. Operators that tell something about their result leave it on the result's origin.
"""

from __future__ import annotations

from typing import Any

import torch

from tclint.tracing.values.operators import Args, Kwargs, OperatorFacts
from tclint.tracing.values.origin import ValueOrigin, ensure_origin, origin_of

_TRUTHS = {
    "_is_all_true": True,
    "_is_any_true": False,
    "all": True,
    "any": False,
    "isfinite": True,
    "isinf": False,
    "isnan": False,
}

# Joined with something that is rarely true everywhere, the result is rarely true everywhere.
_JOINS_MATCHES = frozenset({"bitwise_and", "bitwise_or", "logical_and", "logical_or"})

# Operators of which more is told than what they keep of their first argument.
_TELLING = frozenset(
    {
        *_TRUTHS,
        *_JOINS_MATCHES,
        "amax",
        "argmax",
        "argmin",
        "bincount",
        "eq",
        "histc",
        "max",
        "min",
        "scatter",
        "sum",
        "topk",
    }
)

_ABOVE = frozenset({"gt", "greater", "ne", "not_equal"})
_ROUNDING = 1.0 + 1e-9

_KEEPS_CONTENTS = frozenset(
    {
        "_to_copy", "alias", "bool", "clone", "contiguous", "detach", "expand", "expand_as", "flatten",
        "index", "permute", "repeat", "reshape", "select", "slice", "squeeze", "t", "to", "transpose",
        "type_as", "unsqueeze", "view", "view_as", "where",
    }
)  # fmt: skip


def note_contents(facts: OperatorFacts, args: Args, kwargs: Kwargs, output: Any) -> None:
    """Leave on the outputs what their values may be, where the operator tells (top-k, argmax, ==, counts)."""
    name = facts.name
    if not args or not isinstance(args[0], torch.Tensor):
        return
    if name not in _TELLING:
        _note_kept_contents(facts, args, output)
    elif name in _TRUTHS:
        # "Have all sequences ended?" is no; "are all values valid?" is yes.
        known = origin_of(args[0])
        made = ensure_origin(output)
        made.truth = _TRUTHS[name] and not (known is not None and known.is_match)
        if name == "any" and known is not None and known.density and isinstance(output, torch.Tensor):
            # Whether an expert is among a token's few: those differ.
            made.density = min(1.0, known.density * args[0].numel() / max(1, output.numel()))
            # "Was this expert chosen?" is yes, of enough tokens.
            made.truth = made.truth or (output.dim() == 0 and known.density * args[0].numel() >= 1.0)
    elif name in _JOINS_MATCHES:
        ensure_origin(output).is_match = any(
            known.is_match
            for tensor in args[:2]
            if isinstance(tensor, torch.Tensor) and (known := origin_of(tensor)) is not None
        )
    elif name == "topk":
        ensure_origin(output[1]).choices = args[0].shape[_argument(args, kwargs, 2, "dim", -1)]
    elif name in ("max", "amax") and isinstance(output, torch.Tensor) and _mean_of(args[0]) is not None:
        ensure_origin(output).mean = _mean_of(args[0])
    elif name == "sum" and _is_unknown_count(args[0]):
        # Elsewhere such a number is taken to be 1: durations, repeats, masks of what is there.
        ensure_origin(output).mean = args[0].numel() / max(1, output.numel())
    elif name in ("argmax", "argmin", "max", "min"):
        dim = _argument(args, kwargs, 1, "dim", None)
        indices = output[1] if isinstance(output, (tuple, list)) else output
        if isinstance(dim, int):
            ensure_origin(indices).choices = args[0].shape[dim]
    elif name in ("bincount", "histc"):
        ensure_origin(output).mean = args[0].numel() / max(1, output.numel())
    elif name == "scatter":
        _note_scatter(args, kwargs, output)
    elif name == "eq" and len(args) > 1 and args[1] is args[0]:
        ensure_origin(output).is_match = False  # only NaN differs from itself
    elif name == "eq":
        made = ensure_origin(output)
        made.is_match = True
        for side in args[:2]:
            known = origin_of(side) if isinstance(side, torch.Tensor) else None
            if known is not None and known.choices:
                made.density = 1.0 / known.choices
                break
    else:
        _note_kept_contents(facts, args, output)


def _note_kept_contents(facts: OperatorFacts, args: Args, output: Any) -> None:
    if facts.in_place:
        known = origin_of(output)
        if known is not None:
            known.density = known.choices = known.mean = known.used = None
        return
    known = origin_of(args[0])
    if known is not None and (known.density or known.choices or known.is_match or known.mean is not None):
        _note_from_contents(facts.name, args, known, output)


def _mean_of(tensor: torch.Tensor) -> float | None:
    known = origin_of(tensor)
    return None if known is None else known.mean


def _is_unknown_count(tensor: torch.Tensor) -> bool:
    """Whole numbers of which nothing is known; indices are no counts."""
    if tensor.dtype is torch.bool or tensor.is_floating_point() or tensor.is_complex():
        return False
    known = origin_of(tensor)
    return known is None or not (known.density or known.choices or known.is_match or known.mean is not None)


def _note_scatter(args: Args, kwargs: Kwargs, output: torch.Tensor) -> None:
    dim, index = _argument(args, kwargs, 1, "dim", 0), _argument(args, kwargs, 2, "index", None)
    if isinstance(index, torch.Tensor) and index.dim() == output.dim() > 0:
        # Ones put into zeros, as good as always: k of n in each row.
        ensure_origin(output).density = min(1.0, index.shape[dim] / max(1, output.shape[dim]))


def _note_from_contents(name: str, args: Args, known: ValueOrigin, output: Any) -> None:
    if not isinstance(output, torch.Tensor):
        return
    if name in ("sum", "count_nonzero") and known.density:
        made = ensure_origin(output)
        made.mean, made.used = known.density * args[0].numel() / max(1, output.numel()), known.used
    elif name == "sum" and known.mean is not None:
        ensure_origin(output).mean = known.mean * args[0].numel() / max(1, output.numel())
    elif name in _ABOVE and known.mean is not None:
        made = ensure_origin(output)
        if known.used:
            made.density = known.used  # which of the classes occur
        if output.dim() == 0 and args[1:] == (0,):
            made.truth = known.mean > 0
    elif name == "cumsum" and known.mean is not None and output.dim() == 1:
        made = ensure_origin(output)
        made.mean, made.is_running_sum = known.mean, True
    elif name in _KEEPS_CONTENTS:
        made = ensure_origin(output)
        made.density, made.choices, made.mean = known.density, known.choices, known.mean
        made.is_running_sum, made.is_match = known.is_running_sum, known.is_match
        if known.used and known.density and output.numel() <= known.density * args[0].numel() * _ROUNDING:
            made.density = known.density / known.used  # of one class, which is one that occurs
        else:
            made.used = known.used


def likely_values(tensor: torch.Tensor) -> list[int] | None:
    """The elements of a tensor of counts, flattened, so that they add up; None where nothing is known."""
    origin = origin_of(tensor)
    if origin is None or origin.mean is None or tensor.dtype is torch.bool:
        return None
    count = tensor.numel()
    # The first ones get what does not divide evenly.
    each, rest = divmod(round(origin.mean * count), max(1, count))
    values = [each + (position < rest) for position in range(count)]
    if origin.is_running_sum:
        for position in range(1, count):
            values[position] += values[position - 1]
    return values


def _argument(args: Args, kwargs: Kwargs, position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)
