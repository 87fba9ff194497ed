"""Device memory of a step: what autograd keeps, and what fits a GPU."""
