"""What masks over pairs of tokens hold: one value for earlier tokens, another one for later ones.

Large masks are meta tensors. The upper left corner of such a mask, two rows of two, stands for it: an
operator that goes entry by entry, or cuts along the diagonal, does to the whole what it does to the corner.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from tclint.tracing.values.aliasing import storage_key
from tclint.tracing.values.operators import KINDS, Args, Kwargs, OperatorFacts
from tclint.tracing.values.origin import ensure_origin, map_tensors, origin_of, tensors_in

Triangle: TypeAlias = tuple[float, float]
"""As TensorSpec.triangle."""

MOST_ELEMENTS = 1 << 24
"""Larger tensors are not compared with a triangle."""

_FILLED = {
    **dict.fromkeys(("ones", "new_ones", "ones_like"), 1.0),
    **dict.fromkeys(("zeros", "new_zeros", "zeros_like", "zero"), 0.0),
}
_FILL_VALUE_AT = {"full": 1, "full_like": 1, "new_full": 2, "fill": 1}
_ENTRY_BY_ENTRY = frozenset({"_to_copy", "clone", "contiguous", "masked_fill", "to", "where"})
_CUTS = frozenset({"tril", "triu"})
_SAME_ROWS = frozenset(
    {"alias", "detach", "expand", "lift_fresh", "reshape", "select", "squeeze", "unsqueeze", "view"}
)
"""Views that keep the corner where they keep the last two dims."""


_writes: dict[int, int] = {}
"""Memory -> how often something was written to it; what was known before does not hold after."""


def corner_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The corner of a meta tensor, where it is known."""
    origin = origin_of(tensor)
    if origin is None or origin.corner is None:
        return None
    corner, as_of = origin.corner
    return corner if as_of == _now(tensor) else None


def note_written(tensor: torch.Tensor) -> None:
    """Forget what is known of all that shares memory with a tensor."""
    key = storage_key(tensor)
    if key is not None:
        _writes[key] = _writes.get(key, 0) + 1


def _now(tensor: torch.Tensor) -> tuple[int, int]:
    """A tensor's memory, which copies do not share, and how often something was written to it."""
    key = storage_key(tensor) or 0
    return key, _writes.get(key, 0)


def note_corner(tensor: torch.Tensor, corner: torch.Tensor | None) -> None:
    """Leave on a tensor what its corner is."""
    if corner is None:
        return
    origin = ensure_origin(tensor)
    origin.corner = corner, _now(tensor)
    if origin.maker is not None and origin.place is None:
        origin.maker.meta["triangle"] = known_triangle(tensor)


def known_triangle(tensor: torch.Tensor) -> Triangle | None:
    """The triangle that a tensor holds, by its values or by what is known of them."""
    if not tensor.is_meta:
        return triangle_of(tensor)
    corner = corner_of(tensor)
    if corner is None or tensor.shape[-1] != tensor.shape[-2]:
        return None
    return _triangle_of_corner(corner)


def corner_made(facts: OperatorFacts, args: Args, kwargs: Kwargs, output: Any) -> torch.Tensor | None:
    """The corner of what an operator made of tensors whose corners are known."""
    if not isinstance(output, torch.Tensor) or output.dim() < 2 or min(output.shape[-2:]) < 2:
        return None
    value = _filled_with(facts.name, args, kwargs)
    if value is not None:
        return torch.full((2, 2), value, dtype=output.dtype)
    given = tensors_in(args, kwargs)
    corners = {id(tensor): corner_of(tensor) for tensor in given}
    if all(corner is None for corner in corners.values()):
        return None
    corners |= {id(tensor): _number(tensor) for tensor in given if tensor.dim() == 0}
    if facts.name in _SAME_ROWS or facts.name == "slice":
        return corners[id(given[0])] if _keeps_corner(facts.name, args, given[0], output) else None
    goes_by_entry = facts.name in _ENTRY_BY_ENTRY or KINDS.get(facts.name) == "elementwise"
    if facts.name in _CUTS:
        goes_by_entry = abs(args[1] if len(args) > 1 else kwargs.get("diagonal", 0)) <= 1
    if not goes_by_entry or torch.Tag.nondeterministic_seeded in facts.function.tags:
        return None
    if any(corner is None for corner in corners.values()):
        return None

    def small(tensor: torch.Tensor) -> torch.Tensor:
        corner = corners[id(tensor)]
        assert corner is not None
        return corner.clone()

    kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory")}
    try:
        made = facts.function(*map_tensors(args, small), **map_tensors(kwargs, small))
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    return made if isinstance(made, torch.Tensor) and made.shape == (2, 2) else None


def _filled_with(name: str, args: Args, kwargs: Kwargs) -> Any:
    if name in _FILLED:
        return _FILLED[name]
    at = _FILL_VALUE_AT.get(name)
    value = None if at is None else args[at] if len(args) > at else kwargs.get("fill_value")
    return value if isinstance(value, bool | int | float) else None


def _number(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor of one known number, without dims."""
    if not tensor.is_meta:
        return tensor
    origin = origin_of(tensor)
    known = origin is not None and origin.maker is None and origin.value is not None
    return torch.tensor(origin.value, dtype=tensor.dtype) if known and origin is not None else None


def _keeps_corner(name: str, args: Args, first: torch.Tensor, output: torch.Tensor) -> bool:
    if name in ("select", "slice") and len(args) > 1 and args[1] % first.dim() >= first.dim() - 2:
        start, step = (*args[2:3], 0)[0], (*args[4:5], 1)[0]
        return bool(name == "slice" and not start and step == 1)
    return bool(output.shape[-2:] == first.shape[-2:])


def _triangle_of_corner(corner: torch.Tensor) -> Triangle | None:
    """The two values of a triangle with this corner; None where the diagonal or the rest differs."""
    (own, later), (earlier, own_again) = corner.tolist()
    return (float(own), float(later)) if own == own_again == earlier != later else None


def triangle_of(tensor: torch.Tensor) -> Triangle | None:
    """The two values of a real tensor that holds a triangle in its last two dims."""
    corner = real_corner(tensor)
    return None if corner is None else _triangle_of_corner(corner)


def real_corner(tensor: torch.Tensor) -> torch.Tensor | None:
    """The corner of a real tensor that holds a triangle in its last two dims."""
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_complex() or tensor.dim() < 2:
        return None
    rows, columns = tensor.shape[-2:]
    if rows != columns or rows < 2 or not 0 < tensor.numel() <= MOST_ELEMENTS:
        return None
    first = tensor[(0,) * (tensor.dim() - 2)]
    corner = first[:2, :2].clone()
    if _triangle_of_corner(corner) is None:
        return None
    whole = torch.where(torch.ones(rows, columns, dtype=torch.bool).tril(), first[0, 0], first[0, 1])
    return corner if bool((tensor == whole).all()) else None
