"""Jobs in processes on this machine: a given number at once, results as they come.

Not multiprocessing: its processes import the caller's main module again, and outlive a caller that is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Any, TypeVar

from tclint.fleet.cluster import Lost

ResultT = TypeVar("ResultT")

_SERVE = "from tclint.fleet.processes import serve; serve()"


def completed(
    function: Callable[..., ResultT], jobs: Sequence[tuple[Any, ...]], count: int
) -> Generator[tuple[int, ResultT | Lost], None, None]:
    """The results of `function(*job)` with the positions of their jobs, as they come, one for each job.

    A job whose process is killed is Lost; a new process takes the next one.

    Args:
        count: number of processes.
    """
    processes = [_Process() for _ in range(min(count, len(jobs)))]
    idle: SimpleQueue[_Process] = SimpleQueue()
    for process in processes:
        idle.put(process)

    def run(job: tuple[Any, ...]) -> ResultT | Lost:
        process = idle.get()
        try:
            found: ResultT | Lost = process.call(function, job)
            return found
        finally:
            idle.put(process)

    try:
        with ThreadPoolExecutor(max(1, len(processes))) as threads:
            futures = {threads.submit(run, job): at for at, job in enumerate(jobs)}
            try:
                for future in as_completed(futures):
                    yield futures.pop(future), future.result()
            except BaseException:  # Ctrl-C, and a caller that stops reading
                threads.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.kill()
                raise
    finally:
        for process in processes:
            process.close()


class _Process:
    """Runs functions one after another; starts at the first, and again after it was killed."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def call(self, function: Callable[..., Any], job: tuple[Any, ...]) -> Any:
        running = self._running
        if running is None:
            running = self._running = _started()
        assert running.stdin is not None
        assert running.stdout is not None
        if self._is_over:
            running.kill()
        try:
            pickle.dump((function, job), running.stdin)
            running.stdin.flush()
            error, trace, result = pickle.load(running.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            running.kill()
            self.close()
            return Lost(f"exit code {running.returncode}")
        if error is not None:
            raise error from RuntimeError(trace)  # --debug shows where
        return result

    def kill(self) -> None:
        """End the process, whatever it does; what it was called for is Lost."""
        self._is_over = True
        if self._running is not None:
            self._running.kill()

    def close(self) -> None:
        """Let the process end, and forget it; nothing may run in it."""
        running, self._running = self._running, None
        if running is not None:
            running.communicate()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {_SERVE}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches the caller alone, which kills this
    )


def serve() -> None:
    """Run the functions that come on stdin, and write their results to stdout, pickled, until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed may get among the answers
    while True:
        try:
            function, job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: tuple[Exception | None, str, Any]
        try:
            answer = None, "", function(*job)
        except Exception as error:
            answer = error, traceback.format_exc(), None
        pickle.dump(answer, answers)
        answers.flush()
