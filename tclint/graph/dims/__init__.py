"""Coupled dims: which dims of a model must change together."""
