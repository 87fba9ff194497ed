"""What a transfer rule sees of one op of a padded model, and the table of rules.

A rule takes a `Step` and returns what the op's outputs hold. The invariant of a `Padded` tensor: where every
axis has an old entry, it holds what the original model computes there; where some axis has an added one, one
of the values that this run of the axis may have. A rule that cannot keep it raises `Inexact`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tclint.graph.dims.call import Call, Unmodelled
from tclint.graph.ops import Op, TensorSpec
from tclint.graph.weights.axis import Axis, Fill, Pad, Run, Scattered, Values, joined
from tclint.graph.weights.plan import Edit


@dataclass(frozen=True, slots=True)
class Padded:
    """A tensor of the padded model."""

    axes: tuple[Axis, ...]
    touched: frozenset[int] = frozenset()
    """The dims whose growth the tensor's making had to do with, added entries or not."""
    is_infinite: bool = False
    """Entries of it may be infinite, added ones too: a mask was added."""
    kept: Values = Fill.FINITE
    """What its old entries may be, infinite ones left to `is_infinite`: a norm is not negative."""

    @property
    def is_padded(self) -> bool:
        return any(axis.is_padded for axis in self.axes)

    @property
    def groups(self) -> frozenset[int]:
        """The dims of its added entries."""
        return frozenset().union(*(axis.groups for axis in self.axes))


def values_of(number: float) -> Values:
    """The set that a number is in."""
    if number == 0:
        return Fill.ZERO
    if not abs(number) < float("inf"):
        return frozenset({"not finite"})
    return Fill.POSITIVE if number > 0 else frozenset({"negative"})


class Inexact(Exception):
    """The padded model computes something else from here on, or it is not known what."""

    def __init__(self, reason: str, groups: frozenset[int]) -> None:
        self.reason = reason
        self.groups = groups
        super().__init__(reason)


class Moved(Exception):
    """A weight's entries have to stand as those of what it meets."""

    def __init__(self, origin: tuple[str, int], axis: Axis) -> None:
        self.origin = origin
        self.axis = axis
        super().__init__(f"{origin} stands otherwise")


class Surroundings(Protocol):
    """What a step may ask of the analysis that runs it."""

    def needs(self, edit: Edit, groups: frozenset[int]) -> None:
        """Note an edit without which the op would compute something else."""

    def axes_of_output(self, op: Op, position: int, values: Values) -> tuple[Axis, ...]:
        """The axes of an op's output, by its size alone."""

    def formulas(self, number: float, groups: frozenset[int]) -> list[tuple[str, frozenset[int]]]:
        """How a number may follow from old sizes, and of which dims."""

    def is_returned(self, groups: frozenset[int]) -> bool:
        """Whether one of these dims is one of what the model returns: classes, a vocabulary."""


@dataclass(slots=True)
class Step:
    """One op: `old` as traced, `new` between the resized tensors."""

    old: Op
    new: Op
    inputs: tuple[Padded, ...]
    around: Surroundings
    edits: list[tuple[Edit, frozenset[int]]] = field(default_factory=list)

    # ------------------------------------------------------------------------------ arguments

    @property
    def name(self) -> str:
        return self.old.name

    @property
    def groups(self) -> frozenset[int]:
        """The dims of the added entries of any input."""
        return frozenset().union(*(tensor.groups for tensor in self.inputs))

    @property
    def touched(self) -> frozenset[int]:
        return frozenset().union(*(tensor.touched | tensor.groups for tensor in self.inputs))

    def inexact(self, reason: str, groups: frozenset[int] | None = None) -> Inexact:
        return Inexact(reason, (self.groups or self.touched) if groups is None else groups)

    def optional(self, name: str) -> Padded | None:
        for tensor, input_name in zip(self.inputs, self.old.input_names, strict=False):
            if input_name == name:
                return tensor
        return None

    def tensor(self, *names: str) -> Padded:
        """The tensor argument of the first of these names that was given."""
        for name in names:
            tensor = self.optional(name)
            if tensor is not None:
                return tensor
        raise self.inexact(f"it has no argument {names[0]}")

    def spec(self, name: str) -> TensorSpec | None:
        return self.old.input(name)

    def tensors(self, name: str) -> list[Padded]:
        prefix = name + "["
        return [
            tensor
            for tensor, input_name in zip(self.inputs, self.old.input_names, strict=False)
            if input_name.startswith(prefix)
        ]

    def attribute(self, name: str, default: Any = None) -> Any:
        value = self.old.attributes.get(name)
        return default if value is None else value

    def axis_number(self, dim: int, rank: int) -> int:
        try:
            return Call.axis(dim, rank)
        except Unmodelled as error:
            raise self.inexact(str(error)) from None

    def dims(self, name: str, rank: int, default: Iterable[int] = ()) -> list[int]:
        """A dim or a list of dims, none negative; the default where there are none."""
        given = self.old.attributes.get(name)
        if given is None or given == []:
            return list(default)
        if isinstance(given, int):
            given = [given]
        return [self.axis_number(int(dim), rank) for dim in given]

    def shape(self, position: int = 0) -> tuple[tuple[int, int], ...]:
        """(old, new) size of each axis of an output."""
        return tuple(zip(self.old.outputs[position].shape, self.new.outputs[position].shape, strict=True))

    # ------------------------------------------------------------------------------ results

    def result(self, axes: Sequence[Axis], **known: Any) -> Padded:
        return Padded(tuple(axes), self.touched, **known)

    def results(self, axes: Sequence[Axis], **known: Any) -> list[Padded]:
        """The same for every output."""
        return [self.result(axes, **known) for _ in self.old.outputs]

    def by_size(self, position: int = 0, values: Values = Fill.FINITE) -> tuple[Axis, ...]:
        """The axes of an output that only its size tells of."""
        return self.around.axes_of_output(self.old, position, values)

    def needs(self, edit_kind: Any, groups: frozenset[int], **known: Any) -> None:
        """Note that the op computes the same only with an edit."""
        site = self.old.call_site or self.old.construct_site
        self.around.needs(
            Edit(
                kind=edit_kind,
                module_path=self.old.module_path,
                op=self.old.name,
                path=site.path if site is not None else None,
                line=site.line if site is not None else None,
                **known,
            ),
            groups,
        )

    # ------------------------------------------------------------------------------ axes that meet

    def meet(self, left: Axis, right: Axis) -> Axis:
        """Two axes of which an op combines entries of one place; one of size 1 is broadcast.

        Raises:
            Moved: a weight can be laid out so that they do.
            Inexact: their entries stand in different places.
        """
        if left.runs == right.runs:
            return left if left.origin is not None else right
        if left.runs == (Run(1),):
            return right
        if right.runs == (Run(1),):
            return left
        try:
            return joined(left, right)
        except Scattered as error:
            self.move(left, right)
            raise self.inexact(f"the entries of its inputs stand in different places ({error})") from None

    def move(self, left: Axis, right: Axis) -> None:
        """Lay out a weight as what it meets, where one of both is one."""
        for own, other in ((left, right), (right, left)):
            if own.origin is not None and (own.old_size, own.new_size) == (other.old_size, other.new_size):
                groups = own.groups | other.groups
                runs = (
                    run if run.pad is None else Run(run.length, Pad(Fill.ZERO, groups)) for run in other.runs
                )
                raise Moved(own.origin, Axis.of(runs))

    def drop(self, tensor: Padded, dim: int, *, why: str) -> Padded:
        """The tensor without added entries on an axis that may have none.

        Raises:
            Inexact: it has some, unless the op reads scores, which may be cut before it.
        """
        axis = tensor.axes[dim]
        if not axis.is_padded:
            return tensor
        if not (axis.is_front and self.around.is_returned(axis.groups)):
            raise self.inexact(why, axis.groups)
        self.needs("slice_logits", axis.groups, size=axis.old_size, axis=dim - len(tensor.axes))
        kept = Axis.kept(axis.old_size)
        return replace(tensor, axes=(*tensor.axes[:dim], kept, *tensor.axes[dim + 1 :]))


Rule = Callable[[Step], Sequence[Padded]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a transfer rule under ATen base names."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register
