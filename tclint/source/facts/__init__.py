"""What one file does: autocast regions, loss scaling, casts, switches, values."""
