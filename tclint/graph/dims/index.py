"""Which ops, parameters, inputs and constraints depend on which atoms of a graph's symbolic shapes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from tclint.graph.dims.call import Axes
from tclint.graph.dims.propagate import SymbolicShapes
from tclint.graph.dims.size import Size
from tclint.graph.dims.solver import Constraint
from tclint.graph.ops import Graph, Op, Site


class DimsUnresolved(Exception):
    """A resize whose consequences are not known; the message names the op that stops it."""

    def __init__(self, op: Op | None, reason: str) -> None:
        self.op = op
        """The op that stops it; None where the sizes themselves do."""
        self.reason = reason
        super().__init__(reason if op is None else f"{describe(op)}: {reason}")


def describe(op: Op) -> str:
    """'view at model.py:30 in blocks.0.attention'; a report has no place for whole paths."""
    site = op.call_site or op.construct_site
    place = f" at {os.path.basename(site.path)}:{site.line}" if site is not None else ""
    return f"{op.name}{place}" + (f" in {op.module_path}" if op.module_path else "")


@dataclass(frozen=True, slots=True)
class DimGroup:
    """Dims of one model that must change together.

    A composite group is a size made of several dims (3 * heads * head_dim); resizing it resizes the
    innermost of them that gives the wanted size. Groups compare and hash by `id`.
    """

    id: str
    """Stable within one graph: 'd7', or the expression of a composite, '3*d7*d9'."""
    size: int = field(compare=False)
    parameters: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """(name, axis) of the parameters and buffers whose size depends on this dim."""
    op_indices: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """Ops that read or write a tensor whose size depends on this dim."""
    sites: tuple[Site, ...] = field(default=(), compare=False, repr=False)
    """Where the layers that own those parameters are constructed, in the order of the parameters."""
    fixed: str | None = field(default=None, compare=False)
    """Why the model's code cannot change it alone: it is a model input's dim, or a constant."""
    is_batch: bool = field(default=False, compare=False)
    """The leading dim of a model input."""
    is_output: bool = field(default=False, compare=False)
    """A dim of what the model returns (classes, vocabulary), the batch excepted."""
    is_vocabulary: bool = field(default=False, compare=False)
    """The number of rows of an embedding table (tokens, positions, users)."""
    unresolved: str | None = field(default=None, compare=False)
    """Why it cannot be resized: the op that is not modelled."""
    composite: bool = field(default=False, compare=False)
    roots: tuple[DimGroup, ...] = field(default=(), compare=False, repr=False)
    """The groups that a composite is made of, outermost first."""


class AtomIndex:
    """Look-ups by atom; each is built on first use, once every equation is known."""

    def __init__(self, graph: Graph, shapes: SymbolicShapes) -> None:
        self.graph = graph
        self.shapes = shapes
        self._base: dict[Size, frozenset[int]] = {}

    def base_atoms(self, size: Size) -> frozenset[int]:
        """The atoms that a size depends on in the end."""
        found = self._base.get(size)
        if found is None:
            found = self._base[size] = self.shapes.solver.base_atoms(size)
        return found

    def _all_atoms(self, shapes: Iterable[Axes]) -> frozenset[int]:
        sizes = {axis for axes in shapes for axis in axes}
        return frozenset().union(*(self.base_atoms(size) for size in sizes))

    @cached_property
    def declared(self) -> tuple[int, ...]:
        """The atoms of all parameters and graph inputs, in order."""
        found: dict[int, None] = {}
        for axes in (*self.shapes.parameters.values(), *self.shapes.graph_inputs.values()):
            for axis in axes:
                found.update(dict.fromkeys(sorted(self.base_atoms(axis))))
        return tuple(found)

    @cached_property
    def of_op(self) -> list[frozenset[int]]:
        """The atoms of each op's inputs and outputs."""
        return [
            self._all_atoms((*inputs, *outputs))
            for inputs, outputs in zip(self.shapes.op_inputs, self.shapes.op_outputs, strict=True)
        ]

    @cached_property
    def ops(self) -> dict[int, list[int]]:
        """The ops that each atom occurs in."""
        found: dict[int, list[int]] = {number: [] for number in self.declared}
        for index, atoms in enumerate(self.of_op):
            for number in atoms:
                found.setdefault(number, []).append(index)
        return found

    @cached_property
    def parameters(self) -> dict[int, list[tuple[str, int]]]:
        """The parameters' axes that depend on each atom."""
        found: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for parameter in self.graph.parameters:
            for axis, size in enumerate(self.shapes.parameters[parameter.name]):
                for number in self.base_atoms(size):
                    found[number].append((parameter.name, axis))
        return found

    @cached_property
    def sites(self) -> dict[str, Site]:
        """Where the owner of each parameter was constructed, where known."""
        return {
            parameter.name: parameter.construct_site
            for parameter in self.graph.parameters
            if parameter.construct_site is not None
        }

    @cached_property
    def batch(self) -> frozenset[int]:
        """Atoms of the leading axes of the graph's inputs."""
        return self._all_atoms(axes[:1] for axes in self.shapes.graph_inputs.values())

    @cached_property
    def inputs(self) -> frozenset[int]:
        """Atoms of the other axes of the graph's inputs."""
        return self._all_atoms(axes[1:] for axes in self.shapes.graph_inputs.values()) - self.batch

    @cached_property
    def outputs(self) -> frozenset[int]:
        """Atoms of what the model returns."""
        return self._all_atoms(self.shapes.graph_outputs)

    @cached_property
    def vocabularies(self) -> frozenset[int]:
        """Atoms of the row counts of embedding tables."""
        found: set[int] = set()
        for op, inputs in zip(self.graph.ops, self.shapes.op_inputs, strict=True):
            if op.kind == "embedding" and "weight" in op.input_names:
                found.update(self._all_atoms([inputs[op.input_names.index("weight")][:1]]))
        return frozenset(found)

    @cached_property
    def blocked(self) -> dict[int, DimsUnresolved]:
        """Atoms that cannot be resized, with the first op that stops each."""
        found: dict[int, DimsUnresolved] = {}
        ops, solver = self.graph.ops, self.shapes.solver
        for size, op_index, reason in solver.blocks:
            for number in self.base_atoms(size):
                op = ops[op_index] if op_index < len(ops) else None
                found.setdefault(number, DimsUnresolved(op, reason))
        for number, atom in enumerate(solver.atoms):
            if atom.kind == "opaque":
                found.setdefault(number, DimsUnresolved(ops[atom.op_index], atom.reason))
        return found

    @cached_property
    def constraints(self) -> dict[int, list[Constraint]]:
        """The constraints that each atom occurs in."""
        found: dict[int, list[Constraint]] = defaultdict(list)
        for constraint in self.shapes.solver.constraints:
            for number in self.base_atoms(constraint.left) | self.base_atoms(constraint.right):
                found[number].append(constraint)
        return found
