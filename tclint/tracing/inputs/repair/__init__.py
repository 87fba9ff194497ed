"""Guesses that failed: what the failure tells of the right inputs, and whether what ran can be meant."""
