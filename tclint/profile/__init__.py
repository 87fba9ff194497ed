"""What a GPU really did: traces of torch.profiler read, told by kind and Tensor Core use, beside predictions."""
