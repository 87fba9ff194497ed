"""Training scripts read without running them, without torch."""
