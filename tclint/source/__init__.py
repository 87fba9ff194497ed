"""Reads training scripts without running them and without torch."""
