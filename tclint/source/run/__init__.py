"""Training programs, run with abstract values: what happens in which order, to what, and under which conditions."""
