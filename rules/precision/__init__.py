"""Rules on the precision of float32 work."""
