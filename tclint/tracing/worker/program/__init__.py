"""Runs a project's own program up to where it makes a model, to see which arguments it passes."""
