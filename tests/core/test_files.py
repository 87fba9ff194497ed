"""Several files written together: all of them or none, whatever happens meanwhile."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from tclint.core import files
from tclint.core.errors import UsageError
from tclint.core.files import write_all_atomically


@pytest.fixture
def three(tmp_path: Path) -> dict[str, bytes]:
    """Other contents for three files of a folder."""
    for name in "abc":
        (tmp_path / name).write_text(f"old {name}\n")
    (tmp_path / "b").chmod(0o640)
    return {str(tmp_path / name): f"new {name}\n".encode() for name in "abc"}


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def restored(folder: Path) -> bool:
    try:
        return texts(folder) == OLD
    except FileNotFoundError:  # a file of the writer's went while it was looked at
        return False


OLD = {name: f"old {name}\n" for name in "abc"}
NEW = {name: f"new {name}\n" for name in "abc"}


def test_all_are_written_and_nothing_else_is_left(tmp_path: Path, three: dict[str, bytes]) -> None:
    write_all_atomically(three)
    assert texts(tmp_path) == NEW
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o640


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_error_at_any_file_leaves_all_as_they_were(
    number: int, tmp_path: Path, three: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced: list[str] = []
    real = os.replace

    def failing(source: str, target: str) -> None:
        replaced.append(target)
        if len(replaced) == number:
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(files.os, "replace", failing)
    with pytest.raises(UsageError, match="Input/output error"):
        write_all_atomically(three)
    monkeypatch.undo()
    assert texts(tmp_path) == OLD


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_full_disk_leaves_all_as_they_were(
    number: int, tmp_path: Path, three: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == number:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write_all_atomically(three)
    assert texts(tmp_path) == OLD


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_in_the_middle_leaves_all_as_they_were(
    number: int, sent: signal.Signals, tmp_path: Path, three: dict[str, bytes]
) -> None:
    child = os.fork()
    if child == 0:
        replaced: list[str] = []
        real, writer = os.replace, os.getpid()

        def killed(source: str, target: str) -> None:
            replaced.append(target)
            if len(replaced) == number and os.getpid() == writer:
                os.kill(writer, sent)
            real(source, target)

        os.replace = killed
        try:
            write_all_atomically(three)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    deadline = time.monotonic() + 10.0
    while not restored(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert texts(tmp_path) == OLD


def test_one_file_is_replaced_through_its_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old\n")
    (tmp_path / "link").symlink_to("file")
    write_all_atomically({str(tmp_path / "link"): b"new\n"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new\n"
