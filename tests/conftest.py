"""What all tests share."""

from __future__ import annotations

import compileall
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm_worker
from hypothesis import settings

from tclint.engine.script import construction, models, program_runs
from tclint.source.run.files import File
from tclint.source.run.project import ProjectFiles
from tclint.tracing.worker import client
from tclint.tracing.worker.huge_pages import use_huge_pages

ROOT = Path(__file__).parents[1]

gc.disable()  # until the tests are collected: what is imported for them stays

# Hundreds of processes import tclint: without bytecode each compiles it anew. What tests write, and change
# within the second that bytecode tells apart, is never compiled to a file.
sys.dont_write_bytecode = False
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in the background so, and children inherit it: Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes says more about the machine than about the code. A change is judged by the same
# examples as the one before it; `--hypothesis-profile search` draws new ones.
settings.register_profile("tclint", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile("tclint")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # once, before the workers of pytest-xdist start
        for name in ("tclint", "rules", "tests/support"):
            compileall.compile_dir(ROOT / name, quiet=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Many small files come last, so that no process ends long before the others.
    items.sort(key=lambda item: ROOT / "tests" / "source" in item.path.parents)


def pytest_collection_finish(session: pytest.Session) -> None:
    sys.dont_write_bytecode = True
    gc.freeze()  # neither collections nor forked children go through what was imported
    gc.enable()
    gc.set_threshold(20_000, 20)  # graphs and syntax trees are large, and hardly any of them is garbage
    use_huge_pages()


@pytest.fixture(scope="session", autouse=True)
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is read from the user's cache or left in it, by child processes either."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


_start_fresh_worker = client._start_worker


@pytest.fixture(scope="session", autouse=True)
def _warm_workers() -> Iterator[None]:
    """Models are traced in workers that have imported torch already, except under `fresh_workers`."""
    if not hasattr(os, "pidfd_open"):
        yield
        return
    template = warm_worker.Template()

    def start(*arguments: str, stderr: int = subprocess.DEVNULL) -> object:
        if arguments:  # it does something else than wait for requests
            return _start_fresh_worker(*arguments, stderr=stderr)
        return template.start_worker()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_start_worker", start)
        yield
    template.close()


@pytest.fixture(scope="session", autouse=True)
def _no_programs_of_tests() -> Iterator[None]:
    """Nobody trains the models of tests and benchmarks; to look for who does is to read all of tclint."""
    found_in = models.file_of
    untrained = tuple(f"{ROOT / name}{os.sep}" for name in ("tests", "benchmarks"))

    def file_of(target: str, files: ProjectFiles) -> File | None:
        return None if target.startswith(untrained) else found_in(target, files)

    with pytest.MonkeyPatch.context() as patch:
        for module in (construction, program_runs):
            patch.setattr(module, "file_of", file_of, raising=False)
        yield


@pytest.fixture(scope="module")
def fresh_workers() -> Iterator[None]:
    """For tests of the worker itself, which start it as the command does, with an environment that shows in
    /proc; until the end of the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_start_worker", _start_fresh_worker)
        yield


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """Runs git in the test's folder, with an author and a time of its own and no outer configuration."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    identity = {
        f"GIT_{role}_{name}": value
        for role in ("AUTHOR", "COMMITTER")
        for name, value in (("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "2026-01-02T03:04:05+0000"))
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    return run
