"""What work costs on a GPU: pure Python and NumPy, no torch, no GPU."""
