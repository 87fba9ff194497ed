"""The data of a traced model: Graph, Op and TensorSpec (JSON-serialisable); lists of torch's operators."""

from tclint.graph.ops.graph import Assumption, Graph, Parameter
from tclint.graph.ops.op import Cast, Op, OpKind
from tclint.graph.ops.spec import Site, TensorSpec, itemsize_bytes, numel

__all__ = [
    "Assumption",
    "Cast",
    "Graph",
    "Op",
    "OpKind",
    "Parameter",
    "Site",
    "TensorSpec",
    "itemsize_bytes",
    "numel",
]
