"""The source pass: files are found, parsed and run as programs, and rules ask what these do."""
