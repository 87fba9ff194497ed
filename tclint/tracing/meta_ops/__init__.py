"""Operators on meta tensors: results without memory, and refusals of what torch's kernels refuse."""
