"""Training programs, run with abstract values: what happens in which order, to what, under which tests."""
