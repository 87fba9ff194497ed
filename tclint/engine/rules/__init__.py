"""Finds, checks and selects the rules, and knows the retired ones."""
