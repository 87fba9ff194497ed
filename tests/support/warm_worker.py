"""Workers forked from one that has imported torch already, so that tests need not wait for that.

Importing torch takes longer than all the rest of a small trace. The template is a process that has done what
a worker does before its first request; each worker that a test asks for is forked from it, with the test's
own environment, working directory and pipes. From there on it runs the code that every worker runs.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tclint.tracing.worker import client

_start_fresh_worker = client._start_worker
_LARGEST_MESSAGE = 1 << 20
_SLOW_IMPORTS = ("torch.export.pt2_archive",)
"""Seconds for each worker that needs them; where the tests have imported them, the template does so once."""


class Template:
    """The process that workers are forked from; it starts with the first of them."""

    def __init__(self, descriptor: int | None = None) -> None:
        """With the descriptor of another process's template, that one."""
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = socket.socket(fileno=descriptor) if descriptor is not None else None

    def start_worker(self, *arguments: str, stderr: int = subprocess.DEVNULL) -> Any:
        """A worker; for arguments with which it does not wait for requests, a fresh one."""
        if arguments:
            return _start_fresh_worker(*arguments, stderr=stderr)
        path = [entry for entry in sys.path if entry]
        requests, requests_write = os.pipe()
        answers, answers_write = os.pipe()
        imports = [name for name in _SLOW_IMPORTS if name in sys.modules]
        message = {"folder": os.getcwd(), "environment": dict(os.environ), "path": path, "imports": imports}
        connection = self.connection()
        socket.send_fds(connection, [json.dumps(message).encode()], [requests, answers_write])
        os.close(requests)
        os.close(answers_write)
        pid = json.loads(connection.recv(_LARGEST_MESSAGE))["pid"]
        return ForkedWorker(pid, requests_write, answers)

    def connection(self) -> socket.socket:
        """Where the template takes messages; it starts with the first who asks."""
        if self._socket is None:
            self._socket = self._start([entry for entry in sys.path if entry])
        return self._socket

    def close(self) -> None:
        """End the template; workers end with their input."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()

    def _start(self, path: list[str]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"import sys; sys.path[:] = {path!r}; import warm_worker; warm_worker.serve({theirs.fileno()})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL
        )
        theirs.close()
        return ours


class ForkedWorker:
    """What a worker's client uses of `subprocess.Popen`, for a process that is no child of this one."""

    def __init__(self, pid: int, requests: int, answers: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(requests, "wb")
        self.stdout = os.fdopen(answers, "rb")
        self._ended = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> None:
        """Raises subprocess.TimeoutExpired if the worker runs on."""
        if not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)

    def poll(self) -> int | None:
        """Not None if the worker has ended."""
        return 0 if select.select([self._ended], [], [], 0)[0] else None

    def kill(self) -> None:
        """Kill the worker, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._ended)


def serve(descriptor: int) -> None:
    """Fork a worker for every message, until nobody can send one any more."""
    from tclint.tracing.worker import worker
    from tclint.tracing.worker.huge_pages import use_huge_pages

    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    if worker._import_torch() is not None:
        return
    worker._prepare_for_forks()
    use_huge_pages()
    with socket.socket(fileno=descriptor) as connection:
        while True:
            data, pipes, _, _ = socket.recv_fds(connection, _LARGEST_MESSAGE, 2)
            _reap()
            if not data:
                return
            message = json.loads(data)
            for name in message["imports"]:
                importlib.import_module(name)
            pid = os.fork()
            if pid == 0:
                connection.close()
                _become_a_worker(message, pipes, worker.main)
            for number in pipes:
                os.close(number)
            connection.send(json.dumps({"pid": pid}).encode())


def _become_a_worker(message: dict[str, Any], pipes: list[int], main: Callable[[list[str]], int]) -> None:
    code = 1
    try:
        from tclint.tracing.worker import worker

        os.setsid()
        for number, pipe in enumerate(pipes):
            os.dup2(pipe, number)
            os.close(pipe)
        os.chdir(message["folder"])
        sys.path[:] = message["path"]
        os.environ.clear()
        os.environ.update(message["environment"])
        worker._prepare_for_forks = lambda: None  # that is done
        code = main([])
    finally:
        os._exit(code)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
