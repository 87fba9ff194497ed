"""Rules on loss scaling."""
