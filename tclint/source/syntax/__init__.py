"""From bytes to tables: parsing, positions, prefilters, the cache of parsed files."""
