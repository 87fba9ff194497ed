"""Runs a project's own program up to where it makes a model, to see what it gives it."""
