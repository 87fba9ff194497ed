"""Names of tensor methods and functions, by what a value keeps of their arguments."""

from __future__ import annotations

# These tell about a tensor and hold none of its values.
METADATA = frozenset({"device", "dtype", "shape", "ndim", "size", "dim", "numel", "requires_grad", "is_cuda"})
INDEXING = frozenset(
    {"gather", "index_add", "index_add_", "index_select", "scatter", "scatter_add", "scatter_add_"}
)
JOINS = frozenset({"add", "cat", "concat", "concatenate", "hstack", "mul", "stack", "sub", "vstack", "where"})
ADDS_A_DIM = frozenset({"cat", "concat", "concatenate", "einsum", "hstack", "outer", "stack", "unsqueeze"})
# What they return are places in their argument; of the second group, only the second part is.
PLACES = frozenset(
    {"argmax", "argmin", "argsort", "bucketize", "indices", "multinomial", "nonzero", "searchsorted"}
    # What compares tells of all its arguments and holds none.
    | {"eq", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_not", "lt", "ne"}
)
WITH_PLACES = frozenset({"kthvalue", "max", "median", "min", "mode", "sort", "topk"})
CONCATENATIONS = frozenset({"cat", "concat", "concatenate"})
PRODUCTS = frozenset({"mm", "matmul", "linear", "bmm", "einsum"})
