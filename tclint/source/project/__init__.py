"""What stands around a file in its project: files that run together, versions that it asks for."""
