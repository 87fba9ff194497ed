"""Rules on autocast and 16-bit training."""
