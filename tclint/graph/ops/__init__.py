"""A traced model as plain data: no torch, JSON-serialisable, the ground of every cost and every rule."""

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
