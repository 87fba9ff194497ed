"""The recorder: a dispatch mode that writes down every operator that a model calls."""
