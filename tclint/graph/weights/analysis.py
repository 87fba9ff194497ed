"""One walk over a model whose weights have grown: what each tensor holds, and where that breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tclint.graph.dims.call import Axes
from tclint.graph.dims.index import AtomIndex, describe
from tclint.graph.dims.solver import Inconsistent
from tclint.graph.ops import Graph, Op, Parameter, TensorSpec
from tclint.graph.weights import indexing, pointwise, products, reductions, views
from tclint.graph.weights.axis import Axis, Fill, Layouts, Pad, Run, Scattered, Values
from tclint.graph.weights.plan import Edit
from tclint.graph.weights.step import RULES, Inexact, Moved, Padded, Step, values_of
from tclint.graph.weights.values import formulas

# Importing the topic modules is what fills the table of rules.
_TOPICS = (indexing, pointwise, products, reductions, views)

_NUMBERED = frozenset({"elementwise", "copy", "other", "reduction", "matmul", "linear"})
"""Kinds of ops whose numbers may follow from a size; those of views and layers are checked there."""
_NUMBERS = ("other", "value", "fill_value", "exponent", "alpha", "beta", "weight", "min", "max", "s")
_RANDOM = frozenset(
    {"rand", "randn", "randint", "rand_like", "randn_like", "bernoulli", "normal", "randperm", "multinomial",
     "uniform", "exponential", "random"}
)  # fmt: skip
MAX_MOVES = 400
"""Weights that are laid out anew before the search is given up."""


@dataclass(frozen=True, slots=True)
class Break:
    """Why the padded model does not compute the same, for some dims."""

    op: Op | None
    reason: str
    groups: frozenset[int]

    @property
    def text(self) -> str:
        return self.reason if self.op is None else f"{describe(self.op)}: {self.reason}"


@dataclass(slots=True)
class Outcome:
    """What the walk found."""

    weights: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    """By first name, the weights that grow."""
    breaks: list[Break] = field(default_factory=list)
    edits: list[tuple[Edit, frozenset[int]]] = field(default_factory=list)


def analyse(index: AtomIndex, changes: Mapping[int, int], resized: Graph) -> Outcome:
    """Lay the weights out as the model reads them, and follow their added entries through it.

    Args:
        changes: new values of atoms.
        resized: the graph with them.
    """
    layouts = Layouts(index, changes)
    moved: dict[tuple[str, int], Axis] = {}
    for _ in range(MAX_MOVES):
        walk = _Walk(index, layouts, resized, moved)
        try:
            return walk.run()
        except Moved as move:
            if not _move(index, moved, move):
                break
    walk = _Walk(index, layouts, resized, moved)
    walk.is_settled = True
    return walk.run()


def _move(index: AtomIndex, moved: dict[tuple[str, int], Axis], move: Moved) -> bool:
    """Lay out a weight's axis anew, and with it the axes that are laid out by the same size."""
    name, number = move.origin
    size = index.shapes.parameters[name][number]
    solver = index.shapes.solver
    if move.origin in moved:
        return False
    wanted = solver.resolve(size)
    for parameter in index.graph.parameters:
        for position, axis in enumerate(index.shapes.parameters[parameter.name]):
            place = parameter.name, position
            if place not in moved and solver.resolve(axis) == wanted:
                moved[place] = move.axis
    return True


class _Walk:
    def __init__(
        self,
        index: AtomIndex,
        layouts: Layouts,
        resized: Graph,
        moved: Mapping[tuple[str, int], Axis],
    ) -> None:
        self.index = index
        self.layouts = layouts
        self.graph, self.resized = index.graph, resized
        self.moved = moved
        self.is_settled = False
        """Weights stay as they are laid out."""
        self.outcome = Outcome()
        self.made: list[list[Padded]] = []
        self.parameters = {
            name: parameter
            for parameter in self.graph.parameters
            for name in (parameter.name, *parameter.aliases)
        }
        self.fills = _fills(self.graph)
        self.sizes: dict[int, frozenset[int]] = {}

    def run(self) -> Outcome:
        self._lay_out()
        for old, new in zip(self.graph.ops, self.resized.ops, strict=True):
            self.made.append(self._outputs(old, new))
        self._check_results()
        return self.outcome

    # ------------------------------------------------------------------------------ weights

    def _lay_out(self) -> None:
        for parameter in self.graph.parameters:
            sizes = self.index.shapes.parameters[parameter.name]
            if not any(self.layouts.groups(size) for size in sizes):
                continue
            try:
                axes = tuple(self._weight_axis(parameter, position) for position in range(len(sizes)))
            except (Scattered, Inconsistent) as error:
                groups = frozenset().union(*(self.layouts.groups(size) for size in sizes))
                self.outcome.breaks.append(Break(None, f"the weight {parameter.name}: {error}", groups))
                continue
            if any(axis.is_padded for axis in axes):
                self.outcome.weights[parameter.name] = axes
            for axis in axes:
                if axis.is_padded:
                    self._remember_size(axis.old_size, axis.groups)
        for size_of in self.layouts.changed_atoms():
            self._remember_size(*size_of)

    def _remember_size(self, size: int, groups: frozenset[int]) -> None:
        self.sizes[size] = self.sizes.get(size, frozenset()) | groups

    def _weight_axis(self, parameter: Parameter, position: int) -> Axis:
        place = parameter.name, position
        fill = values_of(self.fills.get(place, 0.0))
        axis = self.moved.get(place)
        if axis is None:
            axis = self.layouts.axis(self.index.shapes.parameters[parameter.name][position])
        axis = axis.filled(fill) if axis.is_padded else axis
        return replace(axis, origin=place)

    # ------------------------------------------------------------------------------ ops

    def _outputs(self, old: Op, new: Op) -> list[Padded]:
        inputs = tuple(self._read(old, position, spec) for position, spec in enumerate(old.inputs))
        step = Step(old, new, inputs, self)
        try:
            found = self._apply(step)
            for made, spec, resized in zip(found, old.outputs, new.outputs, strict=True):
                shape = tuple((axis.old_size, axis.new_size) for axis in made.axes)
                if shape != tuple(zip(spec.shape, resized.shape, strict=True)):
                    raise step.inexact("its result has another shape than it should have")
            return found
        except Moved:
            if not self.is_settled:
                raise
            error = step.inexact("the entries of its inputs stand in different places")
        except Inexact as refusal:
            error = refusal
        except (Scattered, Inconsistent) as refusal:
            error = step.inexact(str(refusal))
        except (IndexError, KeyError, ValueError, TypeError, AttributeError, StopIteration) as refusal:
            # A schema that differs from the one the rule was written for.
            error = step.inexact(f"its arguments are not as expected ({type(refusal).__name__})")
        groups = error.groups or self.all_groups
        self.outcome.breaks.append(Break(old, error.reason, groups))
        return [self._fallback(old, position, step.touched, groups) for position in range(len(old.outputs))]

    @property
    def all_groups(self) -> frozenset[int]:
        return self.layouts.all_groups

    def _apply(self, step: Step) -> list[Padded]:
        old = step.old
        changes = any(
            one.shape != other.shape for one, other in zip(old.outputs, step.new.outputs, strict=True)
        )
        self._check_numbers(step, changes=changes)
        padded = any(tensor.is_padded for tensor in step.inputs)
        if old.name in _RANDOM and changes:
            raise step.inexact("other random numbers are drawn", self._groups_of_outputs(old))
        rule = RULES.get(old.name)
        if not padded and not changes:
            # The same function of the same tensors.
            if rule is not None:
                try:
                    return list(rule(step))
                except (Inexact, Scattered, IndexError, KeyError, ValueError, TypeError, AttributeError):
                    pass
            infinite = any(tensor.is_infinite for tensor in step.inputs)
            return [
                step.result([Axis.kept(size) for size in spec.shape], is_infinite=infinite)
                for spec in old.outputs
            ]
        if rule is None:
            raise step.inexact(
                "no rule says what it makes of added entries", step.groups or self._groups_of_outputs(old)
            )
        return list(rule(step))

    def _groups_of_outputs(self, op: Op) -> frozenset[int]:
        shapes = self.index.shapes.op_outputs[op.index]
        return frozenset().union(*(self.layouts.groups(size) for axes in shapes for size in axes))

    def _fallback(self, op: Op, position: int, touched: frozenset[int], broken: frozenset[int]) -> Padded:
        """An output of which only the size is known, for the dims that did not break here.

        Those that did are zeros from now on, so that they break nothing else.
        """
        axes = self.axes_of_output(op, position, Fill.FINITE)
        return Padded(tuple(_with_zeros(axis, broken) for axis in axes), touched)

    # ------------------------------------------------------------------------------ what an op reads

    def _read(self, op: Op, position: int, spec: TensorSpec) -> Padded:
        sizes = self.index.shapes.op_inputs[op.index][position]
        if spec.producer is not None and spec.producer < len(self.made):
            made = self.made[spec.producer][spec.output_index]
            if tuple(axis.old_size for axis in made.axes) == spec.shape:
                return made
            return self._unknown(op, spec, sizes, "it reads a tensor in another shape than it was made in")
        if spec.parameter is not None and not spec.is_derived:
            parameter = self.parameters.get(spec.parameter)
            if parameter is not None:
                return self._read_weight(op, spec, sizes, parameter)
        if spec.input_name is not None or not any(self.layouts.groups(size) for size in sizes):
            infinite = spec.value is not None and not abs(spec.value) < float("inf")
            kept = Fill.FINITE if infinite or spec.value is None else values_of(spec.value)
            return Padded(tuple(map(Axis.kept, spec.shape)), is_infinite=infinite, kept=kept)
        if spec.value is not None:
            finite = abs(spec.value) < float("inf")
            values = values_of(spec.value) if finite else Fill.FINITE
            axes = tuple(self.layouts.axis(size, values) for size in sizes)
            return Padded(axes, is_infinite=not finite, kept=values)
        source = f"from {spec.parameter}" if spec.is_derived else "itself"
        return self._unknown(op, spec, sizes, f"it reads a table that the model computes {source}")

    def _read_weight(self, op: Op, spec: TensorSpec, sizes: Axes, parameter: Parameter) -> Padded:
        axes = self.outcome.weights.get(parameter.name)
        if axes is None:
            return Padded(tuple(Axis.kept(size) for size in spec.shape))
        groups = frozenset().union(*(axis.groups for axis in axes))
        if not parameter.is_persistent:
            self.outcome.breaks.append(
                Break(op, f"the buffer {parameter.name}, which no checkpoint holds, grows", groups)
            )
        if tuple(axis.old_size for axis in axes) == spec.shape:
            return Padded(axes, groups)
        # Read with axes of size 1 put in or left out.
        given = iter(axis for axis in axes if axis.old_size != 1)
        fitted = [Axis.kept(1) if size == 1 else next(given, Axis.kept(0)) for size in spec.shape]
        if tuple(axis.old_size for axis in fitted) == spec.shape and next(given, None) is None:
            return Padded(tuple(fitted), groups)
        return self._unknown(op, spec, sizes, "it reads a weight in another shape")

    def _unknown(self, op: Op, spec: TensorSpec, sizes: Axes, reason: str) -> Padded:
        groups = frozenset().union(*(self.layouts.groups(size) for size in sizes))
        if groups:
            self.outcome.breaks.append(Break(op, reason, groups))
        return Padded(self._by_size(sizes, spec.shape, Fill.FINITE), groups)

    def _by_size(self, sizes: Axes, shape: tuple[int, ...], values: Values) -> tuple[Axis, ...]:
        axes = []
        for size, value in zip(sizes, shape, strict=True):
            try:
                axes.append(self.layouts.axis(size, values))
            except (Scattered, Inconsistent):
                axes.append(Axis.kept(value))
        return tuple(axes)

    # ------------------------------------------------------------------------------ Surroundings

    def axes_of_output(self, op: Op, position: int, values: Values) -> tuple[Axis, ...]:
        sizes = self.index.shapes.op_outputs[op.index][position]
        return self._by_size(sizes, op.outputs[position].shape, values)

    def needs(self, edit: Edit, groups: frozenset[int]) -> None:
        self.outcome.edits.append((edit, groups))

    def formulas(self, number: float, groups: frozenset[int]) -> list[tuple[str, frozenset[int]]]:
        found = []
        for size, owners in self.sizes.items():
            concerned = owners & groups
            text = next(formulas(number, size), None)
            if concerned and text is not None:
                found.append((text, concerned))
        return found

    def is_returned(self, groups: frozenset[int]) -> bool:
        return bool(groups & (self.index.outputs | self.index.vocabularies))

    # ------------------------------------------------------------------------------ numbers and results

    def _check_numbers(self, step: Step, *, changes: bool) -> None:
        """Numbers in the code that are sizes, or follow from them, would change with the size."""
        op = step.old
        touched = step.touched | (self._groups_of_outputs(op) if changes else frozenset())
        if op.kind not in _NUMBERED or not touched:
            return
        for name in _NUMBERS:
            number = op.attributes.get(name)
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                continue
            for formula, groups in self.formulas(float(number), touched):
                step.needs("constant", groups, value=float(number), formula=formula)
        for spec in op.inputs:
            if spec.producer is not None or spec.input_name is not None or not spec.is_floating:
                continue
            is_lone = spec.numel == 1
            if spec.value is not None:
                for formula, groups in self.formulas(spec.value, touched):
                    step.needs("constant", groups, value=spec.value, formula=formula)
            elif is_lone and self._is_computed(spec):
                raise step.inexact("it reads a number that the model may compute from its sizes", touched)

    def _is_computed(self, spec: TensorSpec) -> bool:
        """Whether the model makes a tensor itself: no weight, no buffer of the checkpoint."""
        parameter = self.parameters.get(spec.parameter or "")
        return parameter is None or not parameter.is_persistent

    def _check_results(self) -> None:
        for position, spec in enumerate(self.graph.outputs):
            if spec.producer is None:
                axes = self.outcome.weights.get(spec.parameter or "", ())
                for axis in axes:
                    reason = f"output {position} is a weight that grows"
                    self.outcome.breaks.append(Break(None, reason, axis.groups))
                continue
            made = self.made[spec.producer][spec.output_index]
            for dim, axis in enumerate(made.axes):
                if not axis.is_padded:
                    continue
                if not axis.is_front:
                    reason = f"added entries stand between those of output {position}"
                    self.outcome.breaks.append(Break(None, reason, axis.groups))
                    continue
                is_last = spec.is_floating and dim == len(made.axes) - 1
                kind = "slice_logits" if is_last and axis.groups & self.index.vocabularies else "slice_output"
                edit = Edit(
                    kind=kind,  # type: ignore[arg-type]
                    size=axis.old_size,
                    axis=dim - len(made.axes),
                    output=position,
                )
                self.outcome.edits.append((edit, axis.groups))


def _with_zeros(axis: Axis, groups: frozenset[int]) -> Axis:
    return Axis.of(
        Run(run.length, Pad(Fill.ZERO, run.pad.groups)) if run.pad and run.pad.groups <= groups else run
        for run in axis.runs
    )


def _fills(graph: Graph) -> dict[tuple[str, int], float]:
    """Axes of weights whose added entries may not be zero: variances, and directions of a weight norm."""
    found: dict[tuple[str, int], float] = {}
    for op in graph.ops:
        for spec, name in zip(op.inputs, op.input_names, strict=False):
            if spec.parameter is None or spec.producer is not None:
                continue
            if name == "running_var":
                found[spec.parameter, 0] = 1.0
            elif op.name in ("_weight_norm", "_weight_norm_interface") and name == "v":
                dim = int(op.attributes.get("dim") or 0)
                found[spec.parameter, dim + len(spec.shape) if dim < 0 else dim] = 1.0
    return found
