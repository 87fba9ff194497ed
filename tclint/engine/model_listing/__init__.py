"""Lists the models of a project that users would lint."""
