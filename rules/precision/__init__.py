"""Rules on precision of float32 work."""
