"""Runs the tables of a program with abstract values: expressions, calls, statements, loops."""
