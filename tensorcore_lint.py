"""The command `tensorcore-lint`: `tclint` under a name that no other distribution has.

On PyPI, the distribution tclint is a linter for Tcl. It installs the same package and the same command, and
what is installed last overwrites files of the other; so this looks before it imports anything of the package.
"""

from __future__ import annotations

import sys
from importlib import metadata
from typing import NoReturn

OTHER = "tclint"
"""Another distribution that installs a package `tclint`."""


def mixed_installation() -> str | None:
    """What is wrong where another package of the same name is installed too, and how to repair it."""
    try:
        version = metadata.version(OTHER)
    except metadata.PackageNotFoundError:
        return None
    return (
        f"the distribution {OTHER} {version}, a linter for Tcl, is installed here as well and has the same "
        "package and command: one has overwritten files of the other. Repair it with 'pip uninstall -y "
        f"{OTHER} tensorcore-lint' and install tensorcore-lint again, the other in an environment of its own."
    )


def main() -> NoReturn:
    """Entry point of the `tensorcore-lint` command."""
    problem = mixed_installation()
    if problem is not None:
        sys.exit(_refused(problem))
    from tclint.cli.main import main as run

    run()


def _refused(problem: str) -> int:
    print(f"error: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
