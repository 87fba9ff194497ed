"""What is known of traced values: their origin, contents, sites, and what was assumed."""
