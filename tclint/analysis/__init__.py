"""What graph rules share: which dims matter to Tensor Cores, what-if edits of a graph, and their wording."""
