"""Where sizes are written: literals and expressions by the names that they are bound to."""
