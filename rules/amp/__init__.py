"""Rules on mixed precision."""
