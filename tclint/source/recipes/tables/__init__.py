"""Tables of the formats of configuration files."""
