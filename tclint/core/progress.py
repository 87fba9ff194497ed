"""What a command says while it works."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from tclint.core.terminal import is_terminal, terminal_width
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
        if is_terminal(self._stream):
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
