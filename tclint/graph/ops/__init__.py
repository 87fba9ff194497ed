"""The data of a traced model: Graph, Op and TensorSpec (JSON-serialisable); lists of torch's operators."""

from tclint.graph.ops.graph import ASSUMED_BATCH, Assumption, Graph, Guess, Parameter
from tclint.graph.ops.op import GEMM_KINDS, OP_KINDS, Cast, Checkpoint, Op, OpKind
from tclint.graph.ops.spec import (
    FLOATING_DTYPES,
    ITEMSIZE_BYTES,
    Site,
    TensorSpec,
    channels_last_strides,
    contiguous_strides,
    itemsize_bytes,
    numel,
)

__all__ = [
    "ASSUMED_BATCH",
    "FLOATING_DTYPES",
    "GEMM_KINDS",
    "ITEMSIZE_BYTES",
    "OP_KINDS",
    "Assumption",
    "Cast",
    "Checkpoint",
    "Graph",
    "Guess",
    "Op",
    "OpKind",
    "Parameter",
    "Site",
    "TensorSpec",
    "channels_last_strides",
    "contiguous_strides",
    "itemsize_bytes",
    "numel",
]
