"""Finds, checks and selects the rules."""
