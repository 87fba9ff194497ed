"""The project around a file: the files that run together, and the versions that it requires."""
