"""A report in every format, compared with another, or followed over time."""
