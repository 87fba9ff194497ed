"""The models of a project that people would lint."""
