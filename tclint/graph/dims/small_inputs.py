"""A model's inputs cut to small sizes, for a run on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tclint.graph.dims.coupled import CoupledDims, DimsUnresolved
from tclint.graph.ops import Graph

_BATCH = 2
_LENGTHS = (8, 16, 32, 64)


def with_small_inputs(dims: CoupledDims) -> Iterator[Graph]:
    """The graph on a batch of two: with lengths as short as its ops allow, with all of them, and as it is.

    Dims that weights share (features, channels) stay.
    """
    own = [group for group in dims.groups if not group.parameters]
    batches = {group: min(group.size, _BATCH) for group in own if group.is_batch}
    lengths = [group for group in own if group.fixed is not None and not group.is_batch]
    for length in _LENGTHS:
        sizes = {**batches, **{group: min(group.size, length) for group in lengths}}
        try:
            yield dims.resize(sizes)
            break
        except DimsUnresolved:
            continue
    with contextlib.suppress(DimsUnresolved):
        yield dims.resize(batches)
    yield dims.graph
