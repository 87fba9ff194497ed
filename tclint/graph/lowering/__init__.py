"""From operators to the kernels of a step, forward and backward."""
