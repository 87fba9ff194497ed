"""Forks a contained process for every request, watches its time and output, reports how it ended.

For every target the zygote forks a keeper. The keeper enters namespaces, where the system has them, and
forks the process that runs the target (through an `init`, since the first process of a PID namespace takes no
signals as others do). Killing the keeper's side ends whatever the target started.

Not multiprocessing's forkserver: its processes import the caller's main module again, which runs a script
that has no guard; it leaves alone what a killed process had started, and it serves the caller's own processes
too, to the end of the caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tclint.tracing.patches.made_folders import remove_made
from tclint.tracing.worker import isolation
from tclint.tracing.worker.huge_pages import use_huge_pages
from tclint.tracing.worker.result_file import EXIT_BROKEN

MAX_OUTPUT_BYTES = 1 << 16
_MANY = 8
"""Targets whose forks have taken more time than a change to huge pages takes (0.05 to 0.25 s)."""
_exit = os._exit  # bound now: user code may replace it


@dataclass
class _Child:
    request: dict[str, Any]
    pid: int
    """The process id of the keeper."""
    output: int
    """Read end of the pipe that the target's stdout and stderr go to."""
    status: int
    """Read end of the pipe that tells how the target's process ended."""
    deadline: float
    captured: bytearray = field(default_factory=bytearray)
    timed_out: bool = False


class Zygote:
    """Serves requests until its input ends.

    Args:
        answers: descriptor that JSON lines are written to.
        run_target: runs a request in a process of its own, and leaves the result in the request's file.
    """

    def __init__(self, answers: int, run_target: Callable[[dict[str, Any]], None]) -> None:
        self._answers = answers
        self._run_target = run_target
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._pending: list[dict[str, Any]] = []
        self._folders: set[str] = set()
        self._jobs = 1
        self._started = 0
        self._buffer = b""
        self._open = True

    def serve(self) -> None:
        """Until the input ends; then kill what still runs."""
        wake_up, wake_up_write = os.pipe()
        os.set_blocking(wake_up_write, False)
        isolation.adopt_orphans()
        # A dead child interrupts the selector, so that nothing has to be polled.
        signal.set_wakeup_fd(wake_up_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._private = (wake_up, wake_up_write)
        self._selector.register(0, selectors.EVENT_READ, "requests")
        self._selector.register(wake_up, selectors.EVENT_READ, "wake-up")
        try:
            while self._open:
                self._wait()
                self._reap()
                self._start_pending()
        finally:
            for child in list(self._children.values()):
                _kill(child.pid)
            # The caller does so too, unless it was killed.
            for folder in self._folders:
                remove_made(os.path.join(folder, "made"))
                shutil.rmtree(folder, ignore_errors=True)

    def _stop(self) -> None:
        self._open = False

    def _wait(self) -> None:
        deadlines = [child.deadline for child in self._children.values() if not child.timed_out]
        timeout = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        for key, _ in self._selector.select(timeout):
            if key.data == "requests":
                self._read_requests()
            elif key.data == "wake-up":
                os.read(key.fd, 4096)
            else:
                self._read_output(key.data)
        now = time.monotonic()
        for child in self._children.values():
            if now >= child.deadline and not child.timed_out:
                child.timed_out = True
                _kill(child.pid)

    def _read_requests(self) -> None:
        received = os.read(0, 1 << 16)
        if not received:
            self._open = False
            return
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "jobs" in message:
                self._jobs = message["jobs"]
            else:
                self._pending.append(message)
                self._folders.add(os.path.dirname(message["result"]))

    def _read_output(self, child: _Child) -> bool:
        try:
            received = os.read(child.output, 1 << 16)
        except BlockingIOError:
            return False
        if not received:
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.output)
            return False
        child.captured += received[: max(0, MAX_OUTPUT_BYTES - len(child.captured))]
        return True

    def _start_pending(self) -> None:
        while self._open and self._pending and len(self._children) < self._jobs:
            self._start(self._pending.pop(0))

    def _start(self, request: dict[str, Any]) -> None:
        self._started += 1
        if self._started == _MANY:
            use_huge_pages()
        output, output_write = os.pipe()
        status, status_write = os.pipe()
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._detach(zygote, output_write)
                for descriptor in (output, status):
                    os.close(descriptor)
                _keep(lambda: self._run_target(request), request, status_write)
            finally:
                _exit(EXIT_BROKEN)
        os.close(output_write)
        os.close(status_write)
        for descriptor in (output, status):
            os.set_blocking(descriptor, False)
        child = _Child(request, pid, output, status, time.monotonic() + request["timeout_s"])
        self._children[pid] = child
        self._selector.register(output, selectors.EVENT_READ, child)
        send(self._answers, {"started": request["id"]})

    def _detach(self, zygote: int, output: int) -> None:
        """Leave the zygote's process group, descriptors and signals."""
        os.setpgid(0, 0)
        isolation.die_with_parent(zygote)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # Ctrl-C goes to the user's own process group, not here; user code may still raise it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.close(self._answers)
        self._selector.close()
        for descriptor in self._private:
            os.close(descriptor)
        for child in self._children.values():
            os.close(child.output)
            os.close(child.status)

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            done, _ = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            isolation.kill_group(pid)  # whatever it started
            while self._read_output(child):
                pass
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.output)
            os.close(child.output)
            status = _read_status(child.status)
            os.close(child.status)
            del self._children[pid]
            if status is None:
                status = int(signal.SIGKILL)
                self._end_orphans()
            send(
                self._answers,
                {
                    "id": child.request["id"],
                    "timed_out": child.timed_out,
                    "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
                    "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
                    "output": child.captured.decode("utf-8", "replace"),
                },
            )

    def _end_orphans(self) -> None:
        """Kill what a target left behind whose keeper was killed."""
        for pid in isolation.children_of(os.getpid()):
            if pid not in self._children:
                isolation.kill_descendants(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _keep(work: Callable[[], None], request: dict[str, Any], status: int) -> NoReturn:
    """Run `work` in a contained process, write how that ended to `status`, leave nothing of it behind."""
    network: bool = request["network"]
    if isolation.enter_namespaces(network=network):
        init = os.fork()
        if init == 0:
            isolation.die_with_parent(0)
            _write_status(status, _wait_for(_fork_worker(work, status, 1)))
            _exit(0)  # and with it every process of the namespace
        os.close(status)
        os.waitpid(init, 0)
        _exit(0)
    isolation.adopt_orphans()
    if not network:
        isolation.refuse_network()
    ended = _wait_for(_fork_worker(work, status, os.getpid()))
    isolation.kill_descendants(os.getpid())
    _write_status(status, ended)
    _exit(0)


def _fork_worker(work: Callable[[], None], status: int, parent: int) -> int:
    pid = os.fork()
    if pid != 0:
        return pid
    code = EXIT_BROKEN
    try:
        os.close(status)
        isolation.die_with_parent(parent)
        silence_stdin()
        work()
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            import traceback

            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        _exit(code)


def _wait_for(worker: int) -> int:
    """The wait status of the worker; orphans that end meanwhile are reaped."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            return status


def _write_status(descriptor: int, status: int) -> None:
    os.write(descriptor, status.to_bytes(4, "little"))


def _read_status(descriptor: int) -> int | None:
    """The wait status that the keeper reported; None where it was killed before."""
    try:
        received = os.read(descriptor, 4)
    except BlockingIOError:
        received = b""
    return int.from_bytes(received, "little") if len(received) == 4 else None


def _kill(keeper: int) -> None:
    """Kill a keeper and all that it keeps."""
    if sys.platform == "linux":
        isolation.kill_descendants(keeper)
    isolation.kill_group(keeper)
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper, signal.SIGKILL)


def silence_stdin() -> None:
    """Let reads of the standard input find its end."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def send(descriptor: int, message: dict[str, Any]) -> None:
    """Write one answer; nobody listening is no error."""
    data = (json.dumps(message) + "\n").encode()
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BrokenPipeError:
            return
