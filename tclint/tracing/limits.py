"""The memory limit of a worker."""

from __future__ import annotations

import contextlib
import sys


def limit_memory(mib: int) -> None:
    """Make allocations beyond `mib` fail in this process, where the system can do that.

    Counts what is private and writable (RLIMIT_DATA), so that large mappings of files and reserved address
    space do not count. macOS and Windows do not enforce it.
    """
    if sys.platform == "win32":
        return
    import resource

    wanted = mib << 20
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    with contextlib.suppress(ValueError, OSError):
        # A crash is reported in one sentence; nobody wants its core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
