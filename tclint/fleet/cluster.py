"""Jobs on a cluster of dask.distributed: a few at a time, those of lost workers again, one result each."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tclint.core.errors import UsageError
from tclint.core.version import __version__

if TYPE_CHECKING:
    from distributed import Client

ResultT = TypeVar("ResultT")

IN_FLIGHT = 2
"""Jobs per thread of the workers that the scheduler has: one runs, one waits. All others stay here."""
CONNECTED_WITHIN_S = 15
WORKERS_WITHIN_S = 30
_PACKAGES = ("tensorcore-lint", "torch")
"""Whose versions results hang on."""
_ONE_AT_A_TIME = threading.Lock()
"""A worker with several threads still does one job at a time: they share the working directory."""


@dataclass(frozen=True, slots=True)
class Lost:
    """What stands for the result of a job whose workers were lost again and again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where jobs run: the same folder and files, with the same versions, as here."""

    folder: str
    digests: tuple[tuple[str, str], ...]
    """The digests of files, named relative to the folder."""
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def here(cls, files: Sequence[str]) -> Workplace:
        """This folder, with these files."""
        found = tuple((file, _digest(file)) for file in dict.fromkeys(files))
        return cls(os.getcwd(), found, _versions())

    def problem(self) -> str:
        """What this process lacks of it; '' for nothing."""
        for (name, wanted), (_, own) in zip(self.versions, _versions(), strict=True):
            if wanted != own:
                return f"it has {name} {own or 'not installed'}, and here it is {wanted or 'not installed'}"
        if not os.path.isdir(self.folder):
            return f"it has no folder {self.folder!r}"
        for file, digest in self.digests:
            if _digest(os.path.join(self.folder, file)) != digest:
                return f"{os.path.join(self.folder, file)!r} is missing there, or another file than here"
        return ""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """In this folder, alone.

        Raises:
            UsageError: this process has not what the place has.
        """
        with _ONE_AT_A_TIME:
            problem = self.problem()
            if problem:
                raise UsageError(f"A worker cannot do the same as this machine: {problem}.")
            before = os.getcwd()
            os.chdir(self.folder)
            try:
                yield
            finally:
                os.chdir(before)


def _digest(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def _versions() -> tuple[tuple[str, str], ...]:
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, __version__ if name == _PACKAGES[0] else ""))
    return tuple(found)


@contextlib.contextmanager
def connected(address: str, place: Workplace) -> Iterator[Client]:
    """A client of the scheduler there, whose workers are fit for the place.

    Raises:
        UsageError: there is no scheduler or no worker, or a worker differs from this machine.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise UsageError(
            "--scheduler needs dask.distributed: install 'tensorcore-lint[fleet]' here and on the workers."
        ) from None
    for name in ("distributed", "distributed.client"):  # this module reports a lost connection itself
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=CONNECTED_WITHIN_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"There is no scheduler of dask at {address!r} ({error}); 'dask scheduler' starts one and says "
            "its address."
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_WITHIN_S)
        except TimeoutError:
            raise UsageError(
                f"The scheduler at {address} has no workers; 'dask worker {address} --nthreads 1' starts one."
            ) from None
        for worker, problem in client.run(Workplace.problem, place, on_error="return").items():
            if problem:
                is_told = isinstance(problem, str)
                told = problem if is_told else f"tclint cannot be imported there ({problem})"
                raise UsageError(
                    f"The worker at {worker} cannot do the same as this machine: {told}; give all workers "
                    "the same environment and, at the same path, the same files."
                )
        yield client


def thread_count(client: Client) -> int:
    """The threads of all present workers; 1 where there are none for the moment."""
    counts: dict[str, int] = client.nthreads()
    return max(1, sum(counts.values()))


def completed(
    client: Client, function: Callable[..., ResultT], jobs: Sequence[tuple[Any, ...]], at_once: int = 0
) -> Iterator[tuple[int, ResultT | Lost]]:
    """The results of `function(*job)` with the positions of their jobs, as they come, one for each job.

    Jobs of a worker that is lost run again on others; one that loses its workers over and over (the
    scheduler's `allowed-failures`) is Lost, and so are those that waited beside it. Workers may come and go.

    Args:
        at_once: jobs that the scheduler has at most; 0: IN_FLIGHT per thread.

    Raises:
        UsageError: the scheduler is gone, or a worker came that cannot do the jobs.
    """
    from distributed import KilledWorker, as_completed

    waiting = deque(range(len(jobs)))
    running: dict[str, int] = {}
    arriving = as_completed(loop=client.loop)

    def submit() -> None:
        while waiting and len(running) < (at_once or IN_FLIGHT * thread_count(client)):
            at = waiting.popleft()
            future = client.submit(function, *jobs[at], pure=False)
            running[future.key] = at
            arriving.add(future)

    try:
        submit()
        for future in arriving:
            at = running.pop(future.key)
            try:
                yield at, future.result()
            except KilledWorker as error:
                yield at, Lost(str(error))
            future.release()
            submit()
    except (OSError, CancelledError):
        raise UsageError(
            "The scheduler of dask is gone; with --resume, the next run goes on from what is written."
        ) from None
