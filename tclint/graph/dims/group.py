"""What users of coupled dims hold in their hands: groups, and the reason why one cannot be resized."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tclint.graph.ops import Op, Site


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
