"""Errors that are the user's to fix: one clear sentence saying what to do next, never a traceback."""

from __future__ import annotations

from collections.abc import Sequence


class TclintError(Exception):
    """Base: the message is shown as it is, and the command exits with 2."""


class UsageError(TclintError):
    """An option, a configuration value or a name (GPU, rule, format) that tclint does not know."""


class TargetError(TclintError):
    """A target that could not be found, built, traced or read; the other targets go on."""

    def __init__(
        self,
        message: str,
        *,
        details: str = "",
        captured_output: str = "",
        needed: Sequence[str] = (),
        has_run: bool = False,
    ) -> None:
        super().__init__(message)
        self.details = details
        """The traceback, for --debug."""
        self.captured_output = captured_output
        """What the user's code printed, for -v."""
        self.needed = tuple(needed)
        """The arguments that the target's callable lacks."""
        self.has_run = has_run
        """Whether the target's code was called and then failed, as it may with other arguments."""


def closest(word: str, known: list[str] | tuple[str, ...]) -> str:
    """' Did you mean X?' for the closest known word, or ''."""
    import difflib

    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" Did you mean {matches[0]!r}?" if matches else ""
