"""`python -m tclint` is the `tclint` command."""

from tclint.cli import main

main()
