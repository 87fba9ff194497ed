"""Clears what a process remembers of projects."""

from __future__ import annotations

from tclint.source.project import (
    configurations,
    effects,
    folders,
    imports,
    launchers,
    requirements,
    scripts,
    stars,
)


def forget() -> None:
    """Read files anew: some may have changed since they were read."""
    configurations.forget()
    effects.forget()
    folders.forget()
    imports.forget()
    launchers.forget()
    requirements.forget()
    scripts.forget()
    stars.forget()
