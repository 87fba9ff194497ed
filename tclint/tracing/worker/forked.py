"""Runs a function in a forked child of this process: it sees all that is here, and changes nothing of it.

A fork copies the calling thread alone. A lock that another thread held at that moment stays locked in the
copy for good. So the child first tries the locks that it may need; if it does not get through, it is killed,
and another one forked. What else may hang is bound by time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import IO, NoReturn, Protocol, TextIO

from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker import isolation
from tclint.tracing.worker.result_file import EXIT_BROKEN
from tclint.tracing.worker.signals import HeldSignals
from tclint.tracing.worker.zygote import silence_stdin

_READY_S = (0.25, 0.5, 1.0, 2.0, 4.0)
"""How long each of the children that are forked one after another may take to get its locks."""
_LOOK_S = 0.05
"""How often a child that says nothing is looked after."""
_LAST_WORDS_S = 0.5
"""For a child that is stopped to say where it is."""
_HEADER = struct.Struct("<cQ")
_READY, _RESULT, _PLACE = b"r", b"d", b"p"
_exit = os._exit  # bound now: user code may replace it


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    result: bytes | None = None
    """What the function returned; None: it did not return."""
    timed_out: bool = False
    place: tuple[str, int] | None = None
    """The file and line where a child that took too long was, if it could tell."""
    status: int | None = None
    """Its wait status; None where another part of this process has waited for it."""
    stdout: str = ""
    stderr: str = ""


class CannotFork(Exception):
    """No child could be made."""


class Locks(Protocol):
    """Locks that other threads of a process may hold when it is forked."""

    def avoid(self) -> None:
        """Called right before a fork: wait until nobody has them."""

    def take(self) -> None:
        """Called in the child: take them, each for a moment."""


def run_forked(work: Callable[[], bytes], timeout_s: float, locks: Locks) -> Ended:
    """What `work()` returns, called in a child.

    Whatever ends this call, a handler of a signal that raises included, has ended the child.

    Args:
        work: may write to its standard output and errors, which are handed back.
        timeout_s: how long it may take.
        locks: which `work` may need. Where they cannot be had, it is called all the same.

    Raises:
        CannotFork: the system has no forks, or refuses one.
    """
    if not hasattr(os, "fork"):
        raise CannotFork
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]  # else the child writes what waits there once more
    with HeldSignals() as signals, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        for ready_s in _READY_S:
            ended = _Child(work, (stdout, stderr), locks).wait(signals, timeout_s, ready_s)
            if ended is not None:
                break
        else:
            ended = _Child(work, (stdout, stderr)).wait(signals, timeout_s)
        return replace(ended or Ended(), stdout=_text(stdout), stderr=_text(stderr))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


class _Child:
    """One forked process, as its parent sees it."""

    def __init__(
        self, work: Callable[[], bytes], output: tuple[IO[bytes], IO[bytes]], locks: Locks | None = None
    ) -> None:
        self._received = bytearray()
        self._is_open = True
        self._is_running = True
        self._status: int | None = None
        self._channel, channel = os.pipe()
        parent = os.getpid()
        try:
            if locks is not None:
                locks.avoid()
            self._pid = os.fork()
            if self._pid == 0:
                _run(work, channel, output, parent, locks)
        except (OSError, RuntimeError) as error:
            os.close(self._channel)
            raise CannotFork from error
        finally:
            if os.getpid() != parent:
                _exit(EXIT_BROKEN)  # no second copy of the caller's program goes on, whatever happened
            os.close(channel)

    def wait(self, signals: HeldSignals, timeout_s: float, ready_s: float | None = None) -> Ended | None:
        """How the child ended, by itself or by force; None: it did not get its locks in time."""
        started = time.monotonic()
        try:
            if ready_s is not None:
                ready = self._message(started + ready_s, signals)
                if ready is None and self._goes_on(signals):
                    return None
            kind, body = self._message(started + timeout_s, signals) or (b"", b"")
            timed_out = self._goes_on(signals) and kind != _RESULT
            if timed_out:
                os.kill(self._pid, signal.SIGTERM)
                kind, body = self._message(time.monotonic() + _LAST_WORDS_S, signals) or (b"", b"")
        finally:
            self._end()
            os.close(self._channel)
        if kind == _RESULT:
            return Ended(body)
        place = tuple(json.loads(body)) if kind == _PLACE else None
        return Ended(None, timed_out, place, self._status)

    def _message(self, deadline: float, signals: HeldSignals) -> tuple[bytes, bytes] | None:
        """The next one; None where the child ends before, the time is over, or a signal came."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while True:
            if len(self._received) >= _HEADER.size:
                kind, length = _HEADER.unpack_from(self._received)
                end = _HEADER.size + length
                if len(self._received) >= end:
                    body = bytes(self._received[_HEADER.size : end])
                    del self._received[:end]
                    return kind, body
            left_s = deadline - time.monotonic()
            if signals.raised is not None or left_s <= 0:
                return None
            look_ms = min(left_s, _LOOK_S) * 1000
            if self._is_open and poll.poll(look_ms):
                received = os.read(self._channel, 1 << 20)
                self._received += received
                self._is_open = bool(received)
            elif not self._goes_on(signals):
                # What it wrote last may have come since.
                if not (self._is_open and poll.poll(0)):
                    return None
            elif not self._is_open:
                time.sleep(look_ms / 1000)

    def _goes_on(self, signals: HeldSignals) -> bool:
        """Whether it runs, and nobody wants it to stop."""
        self._reap(os.WNOHANG)
        return self._is_running and signals.raised is None

    def _end(self) -> None:
        self._reap(os.WNOHANG)
        if self._is_running:
            isolation.kill_descendants(self._pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._reap(0)

    def _reap(self, options: int) -> None:
        if self._is_running:
            try:
                pid, status = os.waitpid(self._pid, options)
            except ChildProcessError:  # another part of this process waits for all children
                self._is_running = False
                return
            if pid:
                self._is_running, self._status = False, status


def _run(
    work: Callable[[], bytes],
    channel: int,
    output: tuple[IO[bytes], IO[bytes]],
    parent: int,
    locks: Locks | None,
) -> NoReturn:
    """The child's life."""
    code = EXIT_BROKEN
    try:
        _detach(output, parent)
        if locks is not None:
            locks.take()
            _send(channel, _READY)
        signal.signal(signal.SIGTERM, lambda _number, frame: _tell_place(channel, frame))
        result = work()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        _end_children()
        _send(channel, _RESULT, result)
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        _exit(code)


def _detach(output: tuple[IO[bytes], IO[bytes]], parent: int) -> None:
    """Leave the caller's signals, input and output."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    # Ctrl-C goes to both processes: the parent decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    faulthandler.disable()  # how the child ends is the parent's to tell
    isolation.die_with_parent(parent)
    silence_stdin()
    for descriptor, file in enumerate(output, start=1):
        os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = map(_lines_to, (1, 2))


def _lines_to(descriptor: int) -> TextIO:
    return os.fdopen(descriptor, "w", 1, "utf-8", "backslashreplace", closefd=False)


def _end_children() -> None:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:  # there are none, as a rule
        return
    isolation.kill_descendants(os.getpid())


def _tell_place(channel: int, frame: FrameType | None) -> NoReturn:
    """Say which line the child is at, the user's if there is one, and end."""
    with contextlib.suppress(BaseException):
        site = SiteFinder().find(frame).site
        if site is not None:
            _send(channel, _PLACE, json.dumps([site.path, site.line]).encode())
    _exit(EXIT_BROKEN)


def _send(channel: int, kind: bytes, body: bytes = b"") -> None:
    data = memoryview(_HEADER.pack(kind, len(body)) + body)
    while data:
        data = data[os.write(channel, data) :]
