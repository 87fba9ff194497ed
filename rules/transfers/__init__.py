"""Rules on copies from the memory of the host to a GPU."""
