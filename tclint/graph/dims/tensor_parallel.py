"""The model as one of several GPUs runs it under tensor parallelism (Shoeybi et al., arXiv 1909.08053).

A dim is split if GPUs that hold equal parts of it need nothing of each other but sums of results: what makes
it is a product with a weight, split over its columns, and the next product contracts it, split over its rows.
Between the two, every op works on each entry of the dim alone. So the inner width of an MLP and the heads of
an attention are split, and a residual stream, over which norms are taken, is not. A vocabulary is split in
its table and in the product with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tclint.graph.dims.call import Axes
from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.dims.size import Size
from tclint.graph.dims.vocabulary import vocabulary_heads
from tclint.graph.ops import Graph, Op

_Split = Mapping[int, int]
"""The number of an atom -> over how many GPUs it is split."""

_APART = frozenset({"linear", "matmul", "attention", "norm", "softmax", "elementwise", "reduction", "loss"})
_APART |= {"copy", "view", "embedding"}
"""Kinds of ops that may have a split dim; all others need whole ones."""
_WHOLE = frozenset({1})
_ALONG_DIMS = frozenset({"softmax", "reduction"})
"""Kinds of ops that go along the axes that their argument `dim` names, all where there is none."""
_OVER_CLASSES = "cross_entropy_loss"
"""The loss that GPUs compute from their parts of the vocabulary, with a sum per token."""


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """A model split over GPUs."""

    graph: Graph
    """What one GPU runs; where parts are not equal, the one with the largest."""
    groups: frozenset[str]
    """The ids of the dims that are split."""
    products: frozenset[int]
    """The products of which each GPU runs a part."""
    summed: tuple[int, ...]
    """Ops whose results are summed over the GPUs."""
    read: tuple[tuple[int, int], ...]
    """(op, its input): whole tensors whose gradients, where they have any, are summed; one op for each."""
    uneven: tuple[int, ...] = ()
    """The sizes that have no equal parts, smallest first."""

    def splits(self, group: DimGroup) -> bool:
        """Whether each GPU has a part of these dims of the whole model."""
        return group.id in self.groups or any(root.id in self.groups for root in group.roots)


_KEPT = 16
_KNOWN: OrderedDict[tuple[int, int], tuple[Graph, TensorSplit]] = OrderedDict()
"""(id of a graph, parts) -> the graph, kept alive so that its id stays its own, and its split."""


def split_over(graph: Graph, parts: int) -> TensorSplit:
    """The part of a model that each of so many GPUs runs."""
    found = _KNOWN.get((id(graph), parts))
    if found is None:
        split = _Search(graph, parts).run() if parts > 1 else _whole(graph)
        found = _KNOWN[id(graph), parts] = graph, split
        while len(_KNOWN) > _KEPT:
            _KNOWN.popitem(last=False)
    _KNOWN.move_to_end((id(graph), parts))
    return found[1]


def _whole(graph: Graph) -> TensorSplit:
    return TensorSplit(graph, frozenset(), frozenset(), (), ())


class _Search:
    """Which dims of one graph are split over so many GPUs."""

    def __init__(self, graph: Graph, parts: int) -> None:
        self._graph = graph
        self._parts = parts
        self._dims = CoupledDims(graph)
        self._groups = self._dims.groups_by_number
        self._index = self._dims.index
        self._shapes = self._index.shapes
        self._parents = graph.composites

    def run(self) -> TensorSplit:
        chosen: _Split = {}
        for number in self._candidates():
            if number not in chosen:
                ways = ({**chosen, **way} for way in self._ways(number) if not way.keys() & chosen.keys())
                chosen = next((way for way in ways if self._runs_apart(way, way.keys() - chosen)), chosen)
        graph, chosen = self._resized(chosen)
        return TensorSplit(
            graph,
            frozenset(self._groups[number].id for number in chosen),
            frozenset(op.index for op in self._graph.products if self._has_part(op, chosen)),
            tuple(op.index for op in self._graph.ops if self._is_summed(op, chosen)),
            tuple(self._read(chosen)),
            tuple(
                sorted({self._groups[n].size for n, over in chosen.items() if self._groups[n].size % over})
            ),
        )

    def _resized(self, chosen: _Split) -> tuple[Graph, _Split]:
        """The graph with its largest parts; what the model's code does not allow stays whole."""
        try:
            return self._dims.resize(self._parts_of(chosen)), chosen
        except DimsUnresolved:
            fit = {number: over for number, over in chosen.items() if self._fits({number: over})}
        return (self._dims.resize(self._parts_of(fit)), fit) if self._fits(fit) else (self._graph, {})

    def _parts_of(self, chosen: _Split) -> dict[DimGroup, int]:
        return {
            self._groups[number]: -(-self._groups[number].size // over) for number, over in chosen.items()
        }

    def _fits(self, chosen: _Split) -> bool:
        try:
            self._dims.resize(self._parts_of(chosen))
        except DimsUnresolved:
            return False
        return True

    # ------------------------------------------------------------------------------ candidates

    def _candidates(self) -> list[int]:
        """Dims that one product with a weight makes and another contracts, and vocabularies; those whose sums
        are smallest for the parameters that are split first, as an inner width goes before a wide stream."""
        paired = self._made_by_weights & self._contracted_with_weights
        summed = dict.fromkeys(filter(self._may_split, paired | self._vocabularies), 0)
        for op, weight in self._weighted:
            for number in self._atoms_of([self._axes_of_weight(op, weight)[1:]]) & summed.keys():
                summed[number] += op.outputs[0].numel
        return sorted(summed, key=lambda number: (summed[number] / max(self._held(number), 1), number))

    @cached_property
    def _made_by_weights(self) -> frozenset[int]:
        return self._atoms_of([self._axes_of_weight(op, at)[:1] for op, at in self._weighted])

    @cached_property
    def _contracted_with_weights(self) -> frozenset[int]:
        return self._atoms_of([self._axes_of_weight(op, at)[1:] for op, at in self._weighted])

    @cached_property
    def _weighted(self) -> list[tuple[Op, int]]:
        """The products with a weight, and its position."""
        found = ((op, self._weight_of(op)) for op in self._graph.ops)
        return [(op, position) for op, position in found if position is not None]

    @cached_property
    def _vocabularies(self) -> frozenset[int]:
        """The widths of a language model's head, which no other product contracts, and of its table."""
        ids: set[str] = set()
        for head in vocabulary_heads(self._dims):
            if head.group is None or self._atoms_of_group(head.group) & self._contracted_with_weights:
                continue
            tables = (
                self._dims.group_of_input(op.index, op.input_names.index("weight"), 0)
                for op in head.embeddings
            )
            ids.update(group.id for group in (head.group, *tables) if group is not None)
        return frozenset(number for number, group in self._groups.items() if group.id in ids)

    def _atoms_of_group(self, group: DimGroup) -> frozenset[int]:
        ids = {group.id, *(root.id for root in group.roots)}
        return frozenset(number for number, one in self._groups.items() if one.id in ids)

    def _may_split(self, number: int) -> bool:
        group = self._groups.get(number)
        return group is not None and not (group.is_batch or group.unresolved)

    def _held(self, number: int) -> int:
        """The parameters whose shape depends on a dim."""
        held = {name for name, _ in self._index.parameters.get(number, ())}
        return sum(parameter.numel for parameter in self._graph.parameters if parameter.name in held)

    def _ways(self, number: int) -> Iterator[_Split]:
        """How a dim can be split: with equal others, and where it is too small, with a dim beside it.

        Eight heads of keys, each for four of queries, go over 16 GPUs so that two of them have the same keys.
        """
        size = self._groups[number].size
        if size >= self._parts:
            yield self._with_equals({number: self._parts})
        elif size > 1 and self._parts % size == 0:
            left = self._parts // size
            beside = {
                other
                for monomial in self._contracted_with(number)
                for other in monomial
                if other != number and self._may_split(other) and self._groups[other].size % left == 0
            }
            for other in sorted(beside, key=lambda one: (-self._held(one), one)):
                yield self._with_equals({number: size, other: left})

    def _contracted_with(self, number: int) -> Iterator[tuple[int, ...]]:
        for op, weight in self._weighted:
            rows = self._shapes.solver.resolve(self._axes_of_weight(op, weight)[1])
            yield from (monomial for monomial, _ in rows.terms if number in monomial)

    def _with_equals(self, way: _Split) -> _Split:
        """With the dims that must be as large as these, where only their products are known to be equal."""
        found = dict(way)
        for number, over in way.items():
            for constraint in self._index.constraints.get(number, ()):
                sides = [self._shapes.solver.resolve(side) for side in (constraint.left, constraint.right)]
                for own, other in (sides, sides[::-1]):
                    alike = (
                        n
                        for n in sorted(other.atoms)
                        if n not in found
                        and self._shapes.solver.values[n] == self._shapes.solver.values[number]
                    )
                    if number in own.atoms and self._over(own, found) != self._over(other, found):
                        found.update((n, over) for n in list(alike)[:1])
        return found

    # ------------------------------------------------------------------------------ ops

    def _over(self, size: Size, chosen: _Split) -> frozenset[int]:
        """Over how many GPUs the parts of an axis are split, that are joined end to end; 0: in a way that
        leaves no equal parts."""
        resolved = self._shapes.solver.resolve(size)
        if not self._index.base_atoms(resolved) & chosen.keys():
            return _WHOLE
        return frozenset(self._over_term(monomial, chosen) for monomial, _ in resolved.terms)

    def _over_term(self, monomial: tuple[int, ...], chosen: _Split) -> int:
        hidden = (self._index.base_atoms(Size.atom(n)) for n in monomial if n not in chosen)
        if any(atoms & chosen.keys() for atoms in hidden):
            return 0
        return prod(chosen.get(number, 1) for number in monomial)

    def _runs_apart(self, chosen: _Split, added: Iterable[int]) -> bool:
        """Whether GPUs with their parts of these dims need nothing of each other but sums of results."""
        ops = sorted({index for number in added for index in self._index.ops[number]})
        equal = (
            self._over(constraint.left, chosen) == self._over(constraint.right, chosen)
            for number in added
            for constraint in self._index.constraints.get(number, ())
        )
        return all(self._op_runs_apart(self._graph.ops[index], chosen) for index in ops) and all(equal)

    def _op_runs_apart(self, op: Op, chosen: _Split) -> bool:
        inputs = [[self._over(size, chosen) for size in axes] for axes in self._shapes.op_inputs[op.index]]
        outputs = [[self._over(size, chosen) for size in axes] for axes in self._shapes.op_outputs[op.index]]
        for axes in (*inputs, *outputs):
            over = prod(max(axis) if min(axis) else 0 for axis in axes)
            if not over or self._parts % over:
                return False
        if op.index in self._parents:
            return True  # its parts tell
        if op.kind not in _APART:
            return False
        if op.kind in ("linear", "matmul"):
            return self._contracts_apart(op, inputs)
        if op.kind == "attention":
            return all(axis == _WHOLE for axes in inputs[:3] for axis in axes[-2:])
        if op.kind == "norm":
            count = len(op.attributes.get("normalized_shape", ())) or len(inputs[0])
            return all(axis == _WHOLE for axis in inputs[0][-count:])
        if op.name == _OVER_CLASSES:
            return self._atoms_of(self._shapes.op_inputs[op.index]) & chosen.keys() <= self._vocabularies
        if op.kind == "embedding":
            return True  # of a vocabulary, as a table of no vocabulary is no product's
        if op.kind in _ALONG_DIMS and not self._is_whole_along(op, inputs[0]):
            return False
        kept = self._atoms_of(self._shapes.op_outputs[op.index])
        return self._atoms_of(self._shapes.op_inputs[op.index]) & chosen.keys() <= kept

    def _atoms_of(self, shapes: Iterable[Axes]) -> frozenset[int]:
        return frozenset().union(*(self._index.base_atoms(size) for axes in shapes for size in axes))

    def _contracts_apart(self, op: Op, inputs: list[list[frozenset[int]]]) -> bool:
        positions = op.operand_positions
        if positions is None:
            return False
        if self._weight_of(op) is None:
            # A GPU has whole heads: their scores are no sums of parts.
            return all(axis == _WHOLE for position in positions for axis in inputs[position][-2:])
        over = inputs[positions[0]][-1]
        # Every GPU has the whole of the model's input.
        is_given = any(op.inputs[position].input_name is not None for position in positions)
        return over == _WHOLE or (over == {self._parts} and not is_given)

    @staticmethod
    def _is_whole_along(op: Op, axes: list[frozenset[int]]) -> bool:
        if "dim" not in op.attributes and all(spec.shape == op.inputs[0].shape for spec in op.outputs):
            return True  # the larger of two tensors, entry by entry
        dims = op.attributes.get("dim")
        given = [dims] if isinstance(dims, int) else dims or range(len(axes))
        return all(axes[dim] == _WHOLE for dim in given if -len(axes) <= dim < len(axes))

    def _weight_of(self, op: Op) -> int | None:
        """The position of a product's weight, where the other matrix is none."""
        positions = op.operand_positions if op.kind in ("linear", "matmul") else None
        if positions is None or op.index in self._parents:
            return None
        weights = [position for position in positions if op.inputs[position].parameter is not None]
        return weights[0] if len(weights) == 1 and len(op.inputs[weights[0]].shape) > 1 else None

    def _axes_of_weight(self, op: Op, weight: int) -> tuple[Size, Size]:
        """The axis of a weight that makes the result, and the one that is contracted."""
        *_, first, second = self._shapes.op_inputs[op.index][weight]
        positions = op.operand_positions
        assert positions is not None
        stored_as_result = op.kind == "linear" or weight == positions[0]
        return (first, second) if stored_as_result else (second, first)

    # ------------------------------------------------------------------------------ what is split

    def _has_part(self, op: Op, chosen: _Split) -> bool:
        return bool(self._atoms_of(self._shapes.op_inputs[op.index]) & chosen.keys())

    def _is_summed(self, op: Op, chosen: _Split) -> bool:
        if op.kind == "embedding" and "weight" in op.input_names:
            rows = self._shapes.op_inputs[op.index][op.input_names.index("weight")][0]
            return self._over(rows, chosen) != _WHOLE
        weight = self._weight_of(op)
        return weight is not None and self._over(self._axes_of_weight(op, weight)[1], chosen) != _WHOLE

    def _read(self, chosen: _Split) -> Iterator[tuple[int, int]]:
        seen = set()
        for op, weight in self._weighted:
            if self._over(self._axes_of_weight(op, weight)[0], chosen) == _WHOLE:
                continue
            (other,) = {*(op.operand_positions or ())} - {weight}
            source = op.inputs[other].source
            if source not in seen:
                seen.add(source)
                yield op.index, other
