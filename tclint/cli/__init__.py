"""The `tclint` command: one module per subcommand."""
