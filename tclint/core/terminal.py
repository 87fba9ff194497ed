"""What the terminal can show, and writing to it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from types import TracebackType
from typing import IO, AnyStr, TextIO

from tclint.core.errors import UsageError
from tclint.core.text import printable

PROGRESS_AFTER_S = 2.0
PROGRESS_EVERY_S = 0.25


class ProgressLine:
    """One line on stderr that says what takes so long: only on a terminal, only after two seconds."""

    def __init__(self, stream: TextIO | None = None, *, after_s: float = PROGRESS_AFTER_S) -> None:
        self._stream = stream or sys.stderr
        self._after_s = after_s
        self._message = ""
        self._shown = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, message: str) -> None:
        """What is being done now."""
        self._message = message

    def __enter__(self) -> ProgressLine:
        if is_terminal(self._stream) and not is_dumb():
            self._thread = threading.Thread(target=self._run, name="tclint-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._shown:
            self._write("\r\x1b[K")

    def _run(self) -> None:
        start_s = time.monotonic()
        wait_s = self._after_s
        while not self._stop.wait(wait_s):
            wait_s = PROGRESS_EVERY_S
            if self._message:
                width = terminal_width(self._stream)
                elapsed_s = time.monotonic() - start_s
                line = f"{printable(self._message)} ({elapsed_s:.0f} s)"
                self._shown = True
                self._write("\r\x1b[K" + line[: max(width - 1, 1)])

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


WIDTH = 80
"""Columns of a report for people that goes to a file or a pipe."""
MAX_WIDTH = 120
"""Columns of one on a wider terminal: longer lines are hard to read."""


def wants_colour(stream: TextIO, no_color: bool = False) -> bool:
    """True where colours help: on a terminal, unless TERM=dumb.

    The option counts before NO_COLOR, and that before FORCE_COLOR (anything but 0).
    """
    if no_color or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return not is_dumb() and is_terminal(stream)


def is_dumb() -> bool:
    """Whether the terminal understands no escape sequences, as TERM=dumb says."""
    return os.environ.get("TERM") == "dumb"


def is_terminal(stream: TextIO) -> bool:
    """isatty, false for closed and replaced streams."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def wants_links(stream: TextIO, no_color: bool = False) -> bool:
    """True where the terminal is known to follow OSC 8 links; FORCE_HYPERLINK=1 or 0 decides for all others.

    Known by what each sets: VTE 0.50 and newer, Konsole, iTerm2, WezTerm, Ghostty, VS Code, Windows Terminal,
    kitty, foot, Alacritty. Inside tmux and screen the outer terminal is unknown.
    """
    forced = os.environ.get("FORCE_HYPERLINK")
    if forced is not None:
        return forced not in ("", "0")
    if not (wants_colour(stream, no_color) and is_terminal(stream)) or os.environ.get("CI"):
        return False
    kind = os.environ.get("TERM", "")
    if kind.startswith(("screen", "tmux")) or os.environ.get("TMUX"):
        return False
    vte = os.environ.get("VTE_VERSION", "")
    return (
        (vte.isdigit() and int(vte) >= 5000)
        or any(name in os.environ for name in ("WT_SESSION", "KONSOLE_VERSION"))
        or os.environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "ghostty", "vscode")
        or kind in ("xterm-kitty", "xterm-ghostty", "foot", "foot-extra", "alacritty")
    )


def hyperlink(text: str, path: str, line: int) -> str:
    """`text` as an OSC 8 link to a line of a file; terminals without links show the text alone.

    The host is part of the address, as the proposal for OSC 8 asks: over ssh the file is not here.
    """
    import socket
    from urllib.parse import quote

    try:
        place = quote(os.fsencode(os.path.abspath(path)))
    except (UnicodeEncodeError, ValueError):  # no name that a file can have
        return text
    return f"\x1b]8;;file://{quote(socket.gethostname())}{place}#{line}\x1b\\{text}\x1b]8;;\x1b\\"


def report_width(stream: TextIO) -> int:
    """What the terminal has, between 40 and MAX_WIDTH columns; WIDTH where there is none."""
    return max(40, min(MAX_WIDTH, terminal_width(stream))) if is_terminal(stream) else WIDTH


def write_stdout(text: str) -> bool:
    """Write `text` to stdout; characters that its encoding lacks are escaped.

    Returns False where the reader has gone (`tclint ... | head`): that is the reader's choice, not an
    error, and nothing more can be written.

    Raises:
        UsageError: the output cannot be written for another reason (a full disk).
    """
    stream = sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return _write(stream, stream, text.encode(encoding, "backslashreplace").decode(encoding))


def write_stdout_bytes(data: bytes) -> bool:
    """Write bytes to stdout as they are; on a terminal, lines that cannot steer it.

    Returns False where the reader has gone.

    Raises:
        UsageError: the output cannot be written.
    """
    stream = sys.stdout
    binary = getattr(stream, "buffer", None)
    if binary is None or is_terminal(stream):
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        return write_stdout("\n".join(printable(line.expandtabs(4)) for line in lines))
    return _write(stream, binary, data)


def _write(stream: TextIO, to: IO[AnyStr], content: AnyStr) -> bool:
    try:
        stream.flush()
        to.write(content)
        to.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit; a descriptor that swallows it avoids a second error.
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as sink:
            os.dup2(sink.fileno(), stream.fileno())
        return False
    except OSError as error:
        raise UsageError(f"Cannot write to standard output: {error.strerror or error}.") from error
    return True


def terminal_width(stream: TextIO) -> int:
    """Columns of the terminal behind a stream; 80 where there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
