"""Language-model heads: the product with the vocabulary, and the embedding that may share its weight."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.graph.dims.coupled import CoupledDims, DimGroup
from tclint.graph.ops import Graph, Op, TensorSpec
from tclint.graph.ops.op_tables import NOT_DIFFERENTIABLE

SMALLEST_VOCABULARY = 1000
"""With fewer rows, an embedding is a table of categories and the head a classifier."""


@dataclass(frozen=True, slots=True)
class VocabularyHead:
    """A product whose columns are a vocabulary."""

    op: Op
    embeddings: tuple[Op, ...]
    """The lookups in tables of the same size."""
    tied: bool
    """Whether the head multiplies with the embedding's own weight."""
    size: int
    group: DimGroup | None


def vocabulary_heads(dims: CoupledDims) -> tuple[VocabularyHead, ...]:
    """The products as wide as one of the model's tables of tokens; tables that are only looked up have
    none."""
    tables = _tables(dims.graph)
    heads = []
    for op in dims.graph.products if tables else ():
        positions = op.operand_positions
        if op.kind not in ("linear", "matmul") or positions is None or not op.outputs[0].shape:
            continue
        size = op.outputs[0].shape[-1]
        weight = op.inputs[positions[1]]
        if size not in tables or weight.parameter is None:
            continue
        names = {spec.parameter for table in tables[size] for spec in table.inputs if spec.parameter}
        axis = len(op.outputs[0].shape) - 1
        heads.append(
            VocabularyHead(
                op,
                tuple(tables[size]),
                weight.parameter in names,
                size,
                dims.group_of_output(op.index, 0, axis),
            )
        )
    return tuple(heads)


def _tables(graph: Graph) -> dict[int, list[Op]]:
    """The lookups in tables of tokens, by their number of rows.

    A model is given its tokens, or picks them by their scores. Positions it counts itself, and a table of
    them may be as long as the model is wide.
    """
    lookups: dict[tuple[int, str | None], list[Op]] = {}
    for op in graph.ops:
        weight = op.input("weight") if op.kind == "embedding" else None
        if weight is not None and len(weight.shape) == 2 and weight.shape[0] >= SMALLEST_VOCABULARY:
            lookups.setdefault((weight.shape[0], weight.parameter), []).append(op)
    tables: dict[int, list[Op]] = {}
    for (rows, _), ops in lookups.items():
        if any(_are_tokens(graph, op.input("indices"), rows) for op in ops):
            tables.setdefault(rows, []).extend(ops)
    return tables


def _are_tokens(graph: Graph, indices: TensorSpec | None, rows: int) -> bool:
    """Whether indices are entries of an input of the model, or were picked from as many scores as a table has
    rows."""
    pending, seen = [indices], set()
    while pending:
        spec = pending.pop()
        if spec is None or spec.is_floating or spec.dtype == "bool":
            continue
        if spec.input_name is not None:
            return True
        op = None if spec.producer is None else graph.ops[spec.producer]
        if op is None or op.index in seen:
            continue
        seen.add(op.index)
        if _passes_values(op):
            pending += op.inputs
        elif any(one.is_floating and rows in one.shape for one in op.inputs):
            return True
    return False


def _passes_values(op: Op) -> bool:
    return op.kind in ("view", "copy", "elementwise") and op.name not in NOT_DIFFERENTIABLE
