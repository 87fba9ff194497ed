"""`python -m tclint` is the `tclint` command."""

import os
import sys

# As with the command itself, no file of the working directory stands for a module that tclint imports.
if sys.path[:1] == [os.getcwd()] != [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]:
    del sys.path[0]

from tclint.cli.main import main

main()
