"""Finds the processes that a test started, and takes back what a test that loads a model in its own process
leaves in it."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tclint.tracing.stand_ins import absent
from tclint.tracing.worker import forked

_VARIABLE = "TCLINT_TEST_MARK"


class Spawned:
    """Processes that inherited the environment of a test."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{_VARIABLE}={mark}".encode()

    def running(self) -> list[int]:
        """The PIDs of those that have not ended."""
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if self._is_ours(folder)]

    def assert_gone(self, within_s: float = 5.0) -> None:
        """Fail if one still runs after a while."""
        deadline = time.monotonic() + within_s
        while self.running():
            assert time.monotonic() < deadline, f"still running: {self.running()}"
            time.sleep(0.05)

    def _is_ours(self, folder: Path) -> bool:
        try:
            return self._mark in (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # ended, or another user's
            return False


@pytest.fixture(scope="session")
def mark_processes() -> Callable[[pytest.MonkeyPatch], Spawned]:
    """Finds the processes that start while a patch of the environment lasts."""

    def mark(patch: pytest.MonkeyPatch) -> Spawned:
        if not Path("/proc/self/environ").exists():
            pytest.skip("needs /proc to find processes")
        value = uuid.uuid4().hex
        patch.setenv(_VARIABLE, value)
        return Spawned(value)

    return mark


@pytest.fixture
def spawned(
    mark_processes: Callable[[pytest.MonkeyPatch], Spawned], monkeypatch: pytest.MonkeyPatch
) -> Spawned:
    """The processes that a test starts."""
    return mark_processes(monkeypatch)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are traced as where there are no forks: what a trace does with them can be looked at."""

    def refuse() -> int:
        raise OSError("no forks here")

    monkeypatch.setattr(forked.os, "fork", refuse)


@pytest.fixture(autouse=True)
def _packages_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another one declared absent; workers end with their declarations."""
    monkeypatch.setattr(absent, "_absent", {})
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
