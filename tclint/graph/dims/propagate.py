"""One walk over a graph that gives every axis of every tensor a symbolic size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tclint.graph.dims import layers as dims_layers
from tclint.graph.dims import pointwise as dims_pointwise
from tclint.graph.dims import spatial as dims_spatial
from tclint.graph.dims import views as dims_views
from tclint.graph.dims.call import RULES, Axes, OpCall, Piece, Unmodelled
from tclint.graph.dims.size import ONE, Size
from tclint.graph.dims.solver import Inconsistent, Solver
from tclint.graph.ops import Graph, Op, TensorSpec

# Importing the topic modules is what fills the table of rules.
_TOPICS = (dims_layers, dims_pointwise, dims_spatial, dims_views)

_Source = tuple[Any, ...] | None


@dataclass(slots=True)
class SymbolicShapes:
    """The symbolic shapes of a graph, and the solver that says what they are worth."""

    solver: Solver
    parameters: dict[str, Axes] = field(default_factory=dict)
    graph_inputs: dict[str, Axes] = field(default_factory=dict)
    op_inputs: list[tuple[Axes, ...]] = field(default_factory=list)
    op_outputs: list[tuple[Axes, ...]] = field(default_factory=list)
    graph_outputs: tuple[Axes, ...] = ()


def propagate(graph: Graph) -> SymbolicShapes:
    """Run every op's propagation rule in order; ops without one make their inputs unchangeable."""
    return _Walk(graph).run()


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.solver = Solver()
        self.shapes = SymbolicShapes(self.solver)
        self.tiles = _tiles(graph)

    def run(self) -> SymbolicShapes:
        free = self.solver.free
        for parameter in self.graph.parameters:
            axes = tuple(free(size, "parameter") for size in parameter.shape)
            for name in (parameter.name, *parameter.aliases):
                self.shapes.parameters[name] = axes
        for position, spec in enumerate(self.graph.inputs):
            name = spec.input_name or f"input{position}"
            self.shapes.graph_inputs[name] = tuple(free(size, "input") for size in spec.shape)
        for op in self.graph.ops:
            inputs = tuple(self._axes_of(spec, op.index) for spec in op.inputs)
            self.shapes.op_inputs.append(inputs)
            self.shapes.op_outputs.append(self._outputs(op, inputs))
        self.shapes.graph_outputs = tuple(
            self._axes_of(spec, len(self.graph.ops)) for spec in self.graph.outputs
        )
        return self.shapes

    def _axes_of(self, spec: TensorSpec, user: int) -> Axes:
        known: Axes | None = None
        if spec.producer is not None and spec.producer < len(self.shapes.op_outputs):
            made = self.shapes.op_outputs[spec.producer]
            known = made[spec.output_index] if spec.output_index < len(made) else None
        elif spec.parameter is not None:
            known = self.shapes.parameters.get(spec.parameter)
        elif spec.input_name is not None:
            known = self.shapes.graph_inputs.get(spec.input_name)
        if known is not None and self._fits(known, spec):
            return known
        if known is not None and spec.producer is None:
            stretched = self._with_ones(known, spec)
            if stretched is not None:
                return stretched
        if known is not None:
            # Reshaped by something that was not recorded.
            self.solver.block(known, user, "it reads this tensor in another shape than it was made in")
        return tuple(
            Size.constant(size) if size <= 1 else self.solver.free(size, "constant", user)
            for size in spec.shape
        )

    def _fits(self, axes: Axes, spec: TensorSpec) -> bool:
        return len(axes) == len(spec.shape) and all(
            self.solver.value(axis) == size for axis, size in zip(axes, spec.shape, strict=True)
        )

    def _with_ones(self, axes: Axes, spec: TensorSpec) -> Axes | None:
        """A parameter's axes with axes of size 1 put in or left out, as constants are before use."""
        kept = tuple(axis for axis in axes if self.solver.value(axis) != 1)
        if [self.solver.value(axis) for axis in kept] != [size for size in spec.shape if size != 1]:
            return None
        others = iter(kept)
        return tuple(ONE if size == 1 else next(others) for size in spec.shape)

    def _outputs(self, op: Op, inputs: tuple[Axes, ...]) -> tuple[Axes, ...]:
        rule = RULES.get(op.name)
        if rule is None and op.kind in dims_pointwise.ELEMENTWISE_KINDS:
            rule = dims_pointwise.elementwise
        reason = "no rule says how its output follows from its inputs"
        if rule is None and len(inputs) == 1 and not any(spec.shape for spec in op.outputs):
            return tuple(() for _ in op.outputs)  # one number of one tensor depends on no size
        if rule is not None:
            try:
                outputs = tuple(rule(OpCall(op, inputs, self.solver, self._pieces_of(op))))
            except (Unmodelled, Inconsistent) as error:
                reason = f"this use of it is not modelled ({error})"
            except (IndexError, ValueError, KeyError, TypeError, AttributeError) as error:
                # A schema that differs from the one the rule was written for.
                reason = f"its arguments are not as expected ({type(error).__name__}: {error})"
            else:
                if len(outputs) == len(op.outputs) and all(
                    self._fits(axes, spec) for axes, spec in zip(outputs, op.outputs, strict=True)
                ):
                    return outputs
                reason = "its output has another shape than its rule gives"
        self.solver.block((axis for axes in inputs for axis in axes), op.index, reason)
        return tuple(
            tuple(
                Size.constant(size) if size <= 1 else self.solver.opaque(size, op.index, reason)
                for size in spec.shape
            )
            for spec in op.outputs
        )

    def _pieces_of(self, op: Op) -> Callable[[int, int], tuple[Piece, ...] | None]:
        """Which slices of an op's input, taken together with those of other ops, tile an axis."""
        return lambda position, dim: self.tiles.get((op.inputs[position].source, dim))


def _tiles(graph: Graph) -> dict[tuple[_Source, int], tuple[Piece, ...]]:
    """(tensor, dim) -> the slices of it that ops take, where they cover it once without overlap."""
    taken: dict[tuple[_Source, int], set[Piece]] = defaultdict(set)
    sizes: dict[tuple[_Source, int], int] = {}
    for op in graph.ops:
        if op.name not in ("slice", "narrow") or not op.inputs or not op.inputs[0].shape:
            continue
        source = op.inputs[0].source
        piece = _piece_of(op)
        if source is None or piece is None:
            continue
        dim, size, bounds = piece
        if bounds != (0, size):
            taken[source, dim].add(bounds)
            sizes[source, dim] = size
    found = {}
    for key, pieces in taken.items():
        ordered = sorted(pieces)
        ends = [0, *(end for _, end in ordered)]
        if [start for start, _ in ordered] == ends[:-1] and ends[-1] == sizes[key]:
            found[key] = tuple(ordered)
    return found


def _piece_of(op: Op) -> tuple[int, int, Piece] | None:
    """(dim, size of that dim, bounds) of a slice with step 1."""
    shape = op.inputs[0].shape
    try:
        dim = OpCall.axis(int(op.attributes.get("dim") or 0), len(shape))
        if op.name == "narrow":
            start = int(op.attributes["start"])
            start = start + shape[dim] if start < 0 else start
            return dim, shape[dim], (start, start + int(op.attributes["length"]))
        if int(op.attributes.get("step") or 1) != 1:
            return None
        return dim, shape[dim], dims_views.slice_bounds(op.attributes, shape[dim])
    except (Unmodelled, KeyError, TypeError, ValueError):
        return None
