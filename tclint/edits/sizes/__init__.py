"""Finds where sizes are written: literals and expressions, and the names that they are bound to."""
