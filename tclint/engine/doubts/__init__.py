"""Doubts with which a report opens because its figures depend on them: guesses, untrained parameters."""
