"""What a propagation rule sees of one op, and the table of rules.

A rule takes a `Call` and returns the symbolic shape of every output; it raises `Unmodelled` for a use of
the op that it has no rule for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tclint.graph.dims.size import ONE, Size, product
from tclint.graph.dims.solver import SizeOrigin, Solver
from tclint.graph.ops.op import Op

Axes = tuple[Size, ...]
"""The symbolic shape of one tensor."""

Piece = tuple[int, int]
"""First index and end of a slice."""


class Unmodelled(Exception):
    """The op, or this use of it, has no rule; the message says why."""


class OpCall:
    """One op with the symbolic shapes of its inputs."""

    def __init__(
        self,
        op: Op,
        inputs: tuple[Axes, ...],
        solver: Solver,
        pieces: Callable[[int, int], tuple[Piece, ...] | None],
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.solver = solver
        self.pieces = pieces
        """(input position, axis) -> the slices that together tile that axis, None where they do not."""

    # ------------------------------------------------------------------------------ arguments

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.op.outputs[0].shape

    def optional(self, name: str) -> Axes | None:
        for axes, input_name in zip(self.inputs, self.op.input_names, strict=False):
            if input_name == name:
                return axes
        return None

    def tensor(self, *names: str) -> Axes:
        """The tensor argument of the first of these schema names that was given.

        Raises:
            Unmodelled: none was.
        """
        for name in names:
            axes = self.optional(name)
            if axes is not None:
                return axes
        raise Unmodelled(f"no argument {names[0]}")

    def first(self) -> Axes:
        if not self.inputs:
            raise Unmodelled("no tensor argument")
        return self.inputs[0]

    def tensors(self, name: str) -> list[Axes]:
        prefix = name + "["
        return [
            axes
            for axes, input_name in zip(self.inputs, self.op.input_names, strict=False)
            if input_name.startswith(prefix)
        ]

    def attribute(self, name: str, default: Any = None) -> Any:
        value = self.op.attributes.get(name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.op.attributes.get(name)
        if value is None:
            value = default
        if not isinstance(value, int):
            raise Unmodelled(f"{name} is not a number")
        return int(value)

    def integers(self, name: str, count: int | None = None) -> tuple[int, ...]:
        """A list attribute, one number standing for `count` equal ones."""
        value = self.op.attributes.get(name)
        if isinstance(value, int):
            value = [value]
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, int) for item in value):
            raise Unmodelled(f"{name} is not a list of numbers")
        if count is not None and len(value) == 1:
            value = list(value) * count
        if count is not None and len(value) != count:
            raise Unmodelled(f"{name} has {len(value)} numbers, not {count}")
        return tuple(value)

    @staticmethod
    def axis(dim: int, rank: int) -> int:
        """A possibly negative dim as an index.

        Raises:
            Unmodelled: the tensor has no such dim.
        """
        index = dim + rank if dim < 0 else dim
        if not 0 <= index < max(rank, 1):
            raise Unmodelled(f"no dim {dim} in a tensor of {rank} dims")
        return index

    # ------------------------------------------------------------------------------ sizes

    def value(self, size: Size) -> int:
        return self.solver.value(size)

    def resolve(self, size: Size) -> Size:
        return self.solver.resolve(size)

    def free(self, value: int, origin: SizeOrigin = "operator") -> Size:
        return self.solver.free(value, origin, self.op.index)

    def free_shape(self, shape: Iterable[int], origin: SizeOrigin = "constant") -> Axes:
        return tuple(ONE if size == 1 else self.free(size, origin) for size in shape)

    def unknown(self, value: int, reason: str) -> Size:
        return self.solver.opaque(value, self.op.index, reason)

    def unify(self, left: Size, right: Size) -> None:
        self.solver.unify(left, right, self.op.index)

    def unify_axes(self, left: Sequence[Size], right: Sequence[Size]) -> None:
        if len(left) != len(right):
            raise Unmodelled("shapes of different rank")
        for one, other in zip(left, right, strict=True):
            self.unify(one, other)

    def divided(self, size: Size, parts: int, *, as_inner: bool = False) -> Size:
        """One of `parts` equal parts of an axis.

        A dim that nothing else determines is then `parts` times a new one; else the quotient.

        Args:
            size: of the axis.
            parts: how many.
            as_inner: entries of one place in all parts are next to each other, not those of one part.
        """
        if parts == 1:
            return size
        equal = self.equal_parts(size, parts)
        if equal is not None:
            return equal
        size = self.resolve(size)
        quotient = size.divided_by(Size.constant(parts))
        if quotient is not None:
            return quotient
        number = size.only_atom
        if number is not None and self.solver.atoms[number].kind == "free":
            origin = self.solver.atoms[number].origin
            part = self.free(self.value(size) // parts, "constant" if origin == "constant" else "factor")
            self.unify(size, product((part, Size.constant(parts))) if as_inner else part.scaled(parts))
            return part
        return self.solver.derived("exact_div", size, (parts,), self.op.index)

    def equal_parts(self, size: Size, parts: int) -> Size | None:
        """The size of each part, where an axis was joined from that many equal ones (q, k and v biases).

        Cutting it into as many pieces again needs the parts to stay equal.
        """
        structure = self.resolve(size).structure or size.structure
        if structure is None or structure[0] != "+" or len(structure[1]) != parts:
            return None
        first, *others = structure[1]
        if any(self.value(other) != self.value(first) for other in others):
            return None
        for other in others:
            self.unify(first, other)
        return self.resolve(first)

    def broadcast(self, shapes: Sequence[Axes]) -> Axes:
        """The elementwise result shape; axes that are not broadcast become equal."""
        rank = max((len(shape) for shape in shapes), default=0)
        result: list[Size] = []
        for position in range(rank):
            axis = ONE
            for shape in shapes:
                offset = position - (rank - len(shape))
                if offset >= 0:
                    axis = self._broadcast_pair(axis, shape[offset])
            result.append(axis)
        return tuple(result)

    def _broadcast_pair(self, left: Size, right: Size) -> Size:
        if ONE in (left, right):
            return right if left == ONE else left
        left_value, right_value = self.value(left), self.value(right)
        if left_value == right_value:
            if left_value == 1:
                return self._meet_ones(left, right)
            self.unify(left, right)
            # Prefer the side that remembers how it was put together.
            return left if left.structure is not None else right
        if left_value == 1:
            self.unify(left, ONE)
            return right
        if right_value == 1:
            self.unify(right, ONE)
            return left
        raise Unmodelled(f"sizes {left_value} and {right_value} do not broadcast")

    def _meet_ones(self, left: Size, right: Size) -> Size:
        # A parameter's axis of size 1 beside a batch of 1 is there to be broadcast, not a batch.
        for side, other in ((left, right), (right, left)):
            number = self.resolve(side).only_atom
            if number is not None and self.solver.atoms[number].origin == "parameter":
                self.unify(side, ONE)
                return other
        self.unify(left, right)
        return left


ShapeRule = Callable[[OpCall], Sequence[Axes]]
RULES: dict[str, ShapeRule] = {}


def rule(*names: str) -> Callable[[ShapeRule], ShapeRule]:
    """Register a propagation rule under ATen base names."""

    def register(function: ShapeRule) -> ShapeRule:
        for name in names:
            RULES[name] = function
        return function

    return register
