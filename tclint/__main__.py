"""`python -m tclint` is the `tclint` command."""

from tclint.cli.main import main

main()
