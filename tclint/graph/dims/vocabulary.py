"""Language-model heads: the product with the vocabulary, and the embedding that may share its weight."""

from __future__ import annotations

from dataclasses import dataclass

from tclint.graph.dims.coupled import CoupledDims, DimGroup
from tclint.graph.ops import Op
from tclint.graph.ops.products import leaf_ops, operand_positions

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
    """The products as wide as one of the model's embedding tables; tables that are only looked up have
    none."""
    tables: dict[int, list[Op]] = {}
    for op in dims.graph.ops:
        weight = op.input("weight") if op.kind == "embedding" else None
        if weight is not None and len(weight.shape) == 2 and weight.shape[0] >= SMALLEST_VOCABULARY:
            tables.setdefault(weight.shape[0], []).append(op)
    heads = []
    for op in leaf_ops(dims.graph) if tables else ():
        positions = operand_positions(op)
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
