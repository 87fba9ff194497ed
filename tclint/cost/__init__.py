"""Predicted kernel times: pure Python and NumPy, no torch, no GPU."""
