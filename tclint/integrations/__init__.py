"""Where other tools call tclint: torch.compile, notebooks, pytest, training frameworks."""
