"""Files written wholly or not at all, one or several together."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.text import printable


def check_writable(path: str) -> None:
    """Fail before minutes of work rather than after.

    Raises:
        UsageError: `path` is a folder, or its folder is missing or read-only.
    """
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise UsageError(f"Cannot write {printable(path)!r}: it is a folder; name a file.")
    if _is_device(path):
        return
    if not os.path.isdir(folder):
        raise UsageError(
            f"Cannot write {printable(path)!r}: the folder {printable(folder)!r} does not exist."
        )
    if not os.access(folder, os.W_OK):
        raise UsageError(
            f"Cannot write {printable(path)!r}: no permission to write in {printable(folder)!r}."
        )


def write_atomically(path: str, text: str) -> None:
    """Replace `path` by `text` in UTF-8, wholly or not at all; permissions of an existing file are kept.

    Raises:
        UsageError: it cannot be written; what was there stays.
    """
    write_bytes_atomically(path, text.encode("utf-8", "backslashreplace"))


def write_bytes_atomically(path: str, data: bytes) -> None:
    """Replace what is in `path`, wholly or not at all; permissions of an existing file are kept.

    Raises:
        UsageError: it cannot be written; what was there stays.
    """
    if not _is_device(path):
        with replacing(path, synced=False) as temporary, open(temporary, "wb") as file:
            file.write(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise _cannot_write(path, error) from error


@contextlib.contextmanager
def replacing(path: str, *, synced: bool = True) -> Iterator[str]:
    """A file to write to, which takes the place of `path` once the block has ended without an error.

    Args:
        synced: whether its content is on the disk before it does.

    Raises:
        UsageError: it cannot be written; what was there stays.
    """
    # A link is followed: replacing it would silently detach it from the file that the user keeps.
    target = os.path.realpath(path)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".tclint-", dir=os.path.dirname(target))
        os.close(descriptor)
        yield temporary
        if synced:
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        os.chmod(temporary, _mode_for(target))
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_all_atomically(contents: Mapping[str, bytes]) -> None:
    """Replace what is in several files: all of them, or none, whatever ends this process meanwhile.

    Everything is on the disk before the first file is replaced. Until the last one is, a second process waits
    for this one to end, and then takes back what it had replaced (not where there is no `fork`).

    Raises:
        UsageError: one cannot be written; what was there stays in all of them.
    """
    staged: dict[str, str] = {}
    kept: dict[str, str] = {}
    path = ""
    try:
        for path, data in contents.items():
            target = os.path.realpath(path)
            staged[target] = _staged(target, data)
            if len(contents) > 1:
                with open(target, "rb") as file:
                    kept[target] = _staged(target, file.read())
        with _taken_back_if_killed(kept, tuple(staged.values())):
            try:
                for path in list(staged):
                    os.replace(staged[path], path)
                    del staged[path]
            except BaseException:
                _take_back(kept)
                raise
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        for temporary in (*staged.values(), *kept.values()):
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _staged(target: str, data: bytes) -> str:
    """A file beside the target with these bytes, on the disk, and the target's permissions."""
    descriptor, temporary = tempfile.mkstemp(prefix=".tclint-", dir=os.path.dirname(target))
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode_for(target))
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _take_back(kept: Mapping[str, str]) -> None:
    for target, copy in kept.items():
        with contextlib.suppress(OSError):
            os.replace(copy, target)


@contextlib.contextmanager
def _taken_back_if_killed(kept: Mapping[str, str], staged: tuple[str, ...]) -> Iterator[None]:
    """While the block runs, a second process waits to put the kept copies back if this one is killed."""
    if not kept or not hasattr(os, "fork"):
        yield
        return
    ended, alive = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        try:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.close(alive)
            if not os.read(ended, 1):  # nobody is left to write
                _take_back(kept)
                for temporary in staged:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary)
        finally:
            os._exit(0)
    os.close(ended)
    try:
        yield
    finally:
        os.write(alive, b"1")
        os.close(alive)
        os.waitpid(keeper, 0)


def _is_device(path: str) -> bool:
    """True for /dev/null, /dev/stdout, pipes: written to, never replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _cannot_write(path: str, error: OSError) -> UsageError:
    return UsageError(f"Cannot write {printable(path)!r}: {error.strerror or error}.")


def _mode_for(path: str) -> int:
    try:
        return os.stat(path).st_mode & 0o7777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def read_record(file: Path) -> Any:
    """What `write_record` wrote.

    Raises:
        OSError, EOFError, zlib.error, ValueError: it is not there, or damaged.
    """
    return json.loads(gzip.decompress(file.read_bytes()))


def write_record(file: Path, record: object, *, level: int = 1) -> None:
    """Write JSON values gzipped, equal ones as equal bytes, wholly or not at all.

    Args:
        level: of the compression; 1 is the fastest.

    Raises:
        UsageError, TypeError, ValueError: it cannot be written, or is not made of JSON values.
    """
    # With mtime=0, equal records give equal files.
    write_bytes_atomically(
        str(file), gzip.compress(json.dumps(record).encode(), compresslevel=level, mtime=0)
    )


def forget_oldest(folder: Path, kept: int, pattern: str = "*.json.gz") -> None:
    """Remove the records that were written first, but for that many."""
    with contextlib.suppress(OSError):
        if sum(1 for _ in os.scandir(folder)) <= kept:
            return
        records = sorted(folder.glob(pattern), key=lambda file: -file.stat().st_mtime)
        for file in records[kept:]:
            file.unlink()
