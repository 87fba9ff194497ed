"""Fixes of traced models: planned, edited in a copy, proved by a trace of it, written."""
