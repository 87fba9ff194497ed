"""A traced model as plain data, without torch."""
