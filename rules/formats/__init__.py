"""Rules on memory formats."""
