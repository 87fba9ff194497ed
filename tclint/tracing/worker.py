"""The process that runs user code: imports torch once, then forks a child for every target.

    python -m tclint.tracing.worker        reads requests from stdin, one JSON object a line
    python -m tclint.tracing.worker --one  traces the single request on stdin in this very process

Answers are JSON lines on the original stdout. Graphs go through files that the request names, so that
nothing the user's code prints can garble them. End of input ends the process and all its children.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

MAX_OUTPUT_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_OLDEST_TORCH = (2, 4)


def main(argv: list[str]) -> int:
    """Entry point; 0 at the end of input."""
    answers = os.dup(1)
    # Anything printed from here on, by torch or by user code, must not reach the answers.
    os.dup2(2, 1)
    if "--one" in argv:
        request = json.loads(sys.stdin.readline())
        _import_torch()
        _silence_stdin()
        run_target(request)
        return 0
    problem = _import_torch()
    _send(answers, {"ready": problem is None, "problem": problem})
    if problem is not None:
        return 1
    _prepare_for_forks()
    _Zygote(answers).serve()
    return 0


def run_target(request: dict[str, Any]) -> None:
    """Trace the request's target in this process and write the result to its file.

    The file holds one JSON line, {"error": ..., "details": ..., "seconds": ...}, and then the graph.
    """
    import torch

    from tclint.errors import TargetError
    from tclint.tracing.entry import TraceOptions, trace_target
    from tclint.tracing.inputs import parse_inputs
    from tclint.tracing.limits import limit_memory
    from tclint.tracing.targets import is_out_of_memory

    torch.set_num_threads(1)
    limit_memory(request["memory_limit_mib"])
    sys.argv = [request["target"].rpartition(":")[0]]
    seconds: dict[str, float] = {}
    header: dict[str, Any] = {"error": None, "details": "", "seconds": seconds}
    text = ""
    try:
        options = TraceOptions(parse_inputs(tuple(request["inputs"])), request["batch"])
        text = trace_target(request["target"], options, seconds).to_json()
    except TargetError as error:
        header.update(error=str(error), details=error.details)
    except BaseException as error:
        import traceback

        if is_out_of_memory(error):
            header["error"] = (
                f"{request['target']} needed more than {request['memory_limit_mib']} MiB of memory: build it "
                "smaller, or raise --memory-limit."
            )
        else:
            header["error"] = (
                f"tclint failed on {request['target']} ({type(error).__name__}: {error}); please report it "
                "with the output of --debug."
            )
        header["details"] = traceback.format_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    with open(request["result"] + ".part", "w", encoding="utf-8") as file:
        file.write(json.dumps(header) + "\n" + text)
    os.replace(request["result"] + ".part", request["result"])


@dataclass
class _Child:
    request: dict[str, Any]
    pid: int
    output: int
    """Read end of the pipe that the child's stdout and stderr go to."""
    deadline: float
    captured: bytearray = field(default_factory=bytearray)
    timed_out: bool = False


class _Zygote:
    """Forks children, watches their time and output, reports how they ended."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._pending: list[dict[str, Any]] = []
        self._jobs = 1
        self._buffer = b""
        self._open = True

    def serve(self) -> None:
        """Until the input ends; then kill what still runs."""
        wake_up, wake_up_write = os.pipe()
        os.set_blocking(wake_up_write, False)
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
                self._kill(child)

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
                self._kill(child)

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
        output, output_write = os.pipe()
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._become_child(zygote, output_write)
                run_target(request)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(70)
            os._exit(0)
        os.close(output_write)
        os.set_blocking(output, False)
        child = _Child(request, pid, output, time.monotonic() + request["timeout_s"])
        self._children[pid] = child
        self._selector.register(output, selectors.EVENT_READ, child)
        _send(self._answers, {"started": request["id"]})

    def _become_child(self, zygote: int, output: int) -> None:
        os.setpgid(0, 0)
        _die_with_parent(zygote)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # Ctrl-C goes to the user's own process group, not here; user code may still raise it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _silence_stdin()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.close(self._answers)
        self._selector.close()
        for descriptor in (*self._private, *(child.output for child in self._children.values())):
            os.close(descriptor)

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            self._kill_group(pid)  # whatever it started
            while self._read_output(child):
                pass
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.output)
            os.close(child.output)
            del self._children[pid]
            _send(
                self._answers,
                {
                    "id": child.request["id"],
                    "timed_out": child.timed_out,
                    "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
                    "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
                    "output": child.captured.decode("utf-8", "replace"),
                },
            )

    def _kill(self, child: _Child) -> None:
        self._kill_group(child.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)

    @staticmethod
    def _kill_group(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _import_torch() -> str | None:
    """Import torch; what is wrong with it, or None."""
    # Scripted and compiled modules run as the plain Python they were made from.
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return "missing"
        return f"torch cannot be imported here: {type(error).__name__}: {error}."
    except Exception as error:
        return f"torch cannot be imported here: {type(error).__name__}: {error}."
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST_TORCH:
        return f"tclint needs torch 2.4 or newer to trace models, and {torch.__version__} is installed here."
    return None


def _prepare_for_forks() -> None:
    import tclint.tracing.entry  # noqa: F401  children inherit it imported
    from tclint.tracing import kinds, light_imports

    light_imports.install()
    kinds.kind_of("add", aliases_input=False)  # reads the table
    gc.collect()
    gc.freeze()  # keeps the collector from touching, and so copying, the pages that children share


def _silence_stdin() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux)."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _send(descriptor: int, message: dict[str, Any]) -> None:
    data = (json.dumps(message) + "\n").encode()
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BrokenPipeError:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
