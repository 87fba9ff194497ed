"""Jobs in processes of this machine: as many at once as it is told, results as they come.

Not multiprocessing: its processes import the caller's main module again, and stay where the caller is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Any, TypeVar

from tclint.fleet.cluster import Lost

ResultT = TypeVar("ResultT")

_SERVE = "from tclint.fleet.processes import serve; serve()"


def completed(
    function: Callable[..., ResultT], jobs: Sequence[tuple[Any, ...]], count: int
) -> Iterator[tuple[int, ResultT | Lost]]:
    """The results of `function(*job)` with the positions of their jobs, as they come, one for each job.

    A job whose process is ended from outside is Lost; the others go on in a new one.

    Args:
        count: of processes.
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
            except BaseException:  # the caller's end included
                threads.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.kill()
                raise
    finally:
        for process in processes:
            process.close()


class _Process:
    """Runs functions, one after the other; starts when it is first used, and anew after it was ended."""

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
            error, result = pickle.load(running.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            running.kill()
            self.close()
            return Lost(f"exit code {running.returncode}")
        if error is not None:
            raise error
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
        start_new_session=True,  # Ctrl-C is for the caller, which ends this
    )


def serve() -> None:
    """Run the functions that come on stdin, and write their results to stdout, pickled, until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints is no answer
    while True:
        try:
            function, job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: tuple[Exception | None, Any]
        try:
            answer = None, function(*job)
        except Exception as error:
            answer = error, None
        pickle.dump(answer, answers)
        answers.flush()
