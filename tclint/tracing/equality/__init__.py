"""A model and its padded copy, run on the CPU: whether they compute the same."""
