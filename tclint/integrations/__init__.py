"""Where other tools call tclint: torch.compile."""
