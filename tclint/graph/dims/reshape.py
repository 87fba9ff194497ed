"""Symbolic view and reshape: which output axes are products or factors of which input axes."""

from __future__ import annotations

from tclint.graph.dims.call import Axes, OpCall, Unmodelled
from tclint.graph.dims.size import ONE, Size, product


def reshape(call: OpCall, axes: Axes, shape: tuple[int, ...]) -> Axes:
    """The symbolic shape of `axes` read in row-major order as `shape`.

    Axes are matched in the smallest runs whose products agree. Within a run an axis is flattened in order
    or taken apart: in the order in which it was put together, where that is known, else into new dims.

    Raises:
        Unmodelled: the element counts differ or the tensor is empty.
    """
    sizes = [call.value(axis) for axis in axes]
    if 0 in sizes or 0 in shape:
        raise Unmodelled("an empty tensor")
    result: list[Size] = []
    i = j = 0
    while i < len(axes) or j < len(shape):
        first_in, first_out = i, j
        have = want = 1
        # One axis on each side at least: a leading 1 stays a leading 1 where both sides have it.
        if i < len(axes):
            have *= sizes[i]
            i += 1
        if j < len(shape):
            want *= shape[j]
            j += 1
        while have != want:
            if have < want and i < len(axes):
                have *= sizes[i]
                i += 1
            elif have > want and j < len(shape):
                want *= shape[j]
                j += 1
            else:
                raise Unmodelled("the view does not hold as many elements as its input")
        result.extend(_match_run(call, axes[first_in:i], shape[first_out:j]))
    return tuple(result)


def _match_run(call: OpCall, axes: Axes, shape: tuple[int, ...]) -> list[Size]:
    if len(axes) == 1 and len(shape) == 1:
        return [axes[0]]
    if len(shape) == 1:
        return [product(axes)]
    if not shape:
        for axis in axes:
            call.unify(axis, ONE)
        return []
    pending = [factor for axis in axes for factor in _factors(call, axis)]
    result: list[Size] = []
    for position, wanted in enumerate(shape):
        if wanted == 1:
            result.append(ONE)
            continue
        if all(size == 1 for size in shape[position + 1 :]):
            result.append(product(pending))
            pending = []
            continue
        result.append(product(_take(call, pending, wanted, shape[position + 1 :])))
    return result


def _factors(call: OpCall, axis: Size) -> list[Size]:
    """An axis as the axes it was flattened from, outermost first, without those of size 1."""
    resolved = call.resolve(axis)
    structure = resolved.structure or axis.structure
    if structure is None or structure[0] != "*":
        return [] if resolved == ONE else [resolved]
    return [factor for part in structure[1] for factor in _factors(call, part)]


def _take(call: OpCall, pending: list[Size], wanted: int, rest: tuple[int, ...]) -> list[Size]:
    """Remove factors worth `wanted` from the front of `pending`, splitting the last one where needed."""
    taken: list[Size] = []
    while wanted > 1:
        if not pending:
            raise Unmodelled("the view does not factor")
        factor = pending.pop(0)
        size = call.value(factor)
        if wanted % size == 0:
            taken.append(factor)
            wanted //= size
        elif size % wanted == 0:
            outer, inner = _split(call, factor, wanted, rest)
            taken.append(outer)
            pending.insert(0, inner)
            wanted = 1
        elif pending:
            # It was put together in other factors than it is taken apart in: forget those.
            pending[0] = (factor * pending[0]).with_structure(None)
        else:
            raise Unmodelled(f"an axis of {size} and an axis of {wanted} share no run of elements")
    return taken


def _split(call: OpCall, size: Size, outer: int, rest: tuple[int, ...]) -> tuple[Size, Size]:
    """An axis as (outer, inner), where `outer` is the outer one's value."""
    inner = call.value(size) // outer
    size = call.resolve(size)
    if size.is_constant:
        return Size.constant(outer), Size.constant(inner)
    number = size.only_atom
    if number is not None and call.solver.atoms[number].kind == "free":
        first, second = call.free(outer, "factor"), call.free(inner, "factor")
        call.unify(size, product((first, second)))
        return first, second
    equal = call.equal_parts(size, outer)
    if equal is not None:
        return Size.constant(outer), equal
    known = _known_factor(call, size, outer, inner)
    if known is not None:
        return known
    # Nothing tells which of the two follows when the axis grows: a count of groups or heads stays.
    if outer <= inner or len(rest) > 1:
        return Size.constant(outer), call.solver.derived("exact_div", size, (outer,), call.op.index)
    return call.solver.derived("exact_div", size, (inner,), call.op.index), Size.constant(inner)


def _known_factor(call: OpCall, size: Size, outer: int, inner: int) -> tuple[Size, Size] | None:
    """A factor of a product that has one of the wanted values: its coefficient, or an atom of it."""
    if len(size.terms) != 1:
        return None
    monomial, coefficient = size.terms[0]
    if coefficient == outer:
        rest = size.divided_by(Size.constant(coefficient))
        return None if rest is None else (Size.constant(outer), rest)
    if coefficient == inner:
        rest = size.divided_by(Size.constant(coefficient))
        return None if rest is None else (rest, Size.constant(inner))
    for number in monomial:
        factor = Size.atom(number)
        rest = size.divided_by(factor)
        if rest is None:
            continue
        if call.value(factor) == outer:
            return factor, rest
        if call.value(factor) == inner:
            return rest, factor
    if coefficient > 1 and outer % coefficient == 0:
        # qkv = 3*h seen as (3*heads, head_dim): the coefficient is the outermost factor.
        rest = size.divided_by(Size.constant(coefficient))
        if rest is not None:
            heads, inside = _split(call, rest, outer // coefficient, ())
            return product((Size.constant(coefficient), heads)), inside
    return None
