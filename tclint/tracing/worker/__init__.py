"""Targets in processes of their own, with limits on time and memory."""
