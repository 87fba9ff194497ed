"""Rules on switches, loaders and the training step."""
