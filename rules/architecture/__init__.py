"""Rules on layers and their order."""
