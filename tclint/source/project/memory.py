"""What is remembered of projects within a process."""

from __future__ import annotations

from tclint.source.project import folders, launchers, requirements, scripts, stars


def forget() -> None:
    """Read files anew: some may have changed since they were read."""
    folders.names_in.cache_clear()
    launchers.forget()
    requirements.forget()
    scripts.forget()
    stars.forget()
