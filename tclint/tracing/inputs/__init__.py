"""Inputs of a model: given by the user, stated by its file, or inferred."""
