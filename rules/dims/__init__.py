"""Rules on sizes."""
