"""The source pass: finds and parses files, runs them as programs, and asks the rules about these."""
