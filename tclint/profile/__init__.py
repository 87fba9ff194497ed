"""What a GPU really did: profiler traces read, told by kind and by use of Tensor Cores."""
