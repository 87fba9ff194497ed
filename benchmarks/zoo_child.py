"""Runs something in a forked child with a time limit, and reads back what it says."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any


def run_in_child(
    work: Callable[[Callable[..., None]], None], timeout_s: float, *, may_fork: bool = False
) -> tuple[dict[str, str], str]:
    """Fork; `work(say)` runs in the child, where `say(key=value)` sends results as they come.

    Args:
        may_fork: whether it may start workers of its own, as the command line does.

    Returns:
        what was said, and how it ended where it did not end by itself: 'Timeout' or 'Died', else ''.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        if not may_fork:
            del os.fork  # what is traced here is also measured here, not in a child of this one
        try:
            _silence()
            work(lambda **values: _say(writer, values))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    data, timed_out = _read_all(reader, timeout_s)
    os.close(reader)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    _, exit_status = os.waitpid(child, 0)
    lines = [line.partition("\t") for line in data.decode(errors="replace").split("\n")]
    said = {key: text for key, separator, text in lines if separator}
    return said, "Timeout" if timed_out else "Died" if exit_status else ""


def _silence() -> None:
    # What models print is not part of the result.
    if not os.environ.get("ZOO_VERBOSE"):
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)


def _say(writer: int, values: dict[str, Any]) -> None:
    for key, value in values.items():
        text = str(value).replace("\n", " ").replace("\t", " ")
        os.write(writer, f"{key}\t{text}\n".encode())


def _read_all(reader: int, timeout_s: float) -> tuple[bytes, bool]:
    deadline = time.monotonic() + timeout_s
    data = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return data, True
        part = os.read(reader, 1 << 16)
        if not part:
            return data, False
        data += part
