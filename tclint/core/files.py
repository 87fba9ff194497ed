"""Files written wholly or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

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
    temporary: str | None = None
    if _is_device(path):
        try:
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise _cannot_write(path, error) from error
        return
    # A link is followed: replacing it would silently detach it from the file that the user keeps.
    target = os.path.realpath(path)
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".tclint-", dir=os.path.dirname(target))
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, _mode_for(target))
        os.replace(temporary, target)
        temporary = None
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """A file to write to, which takes the place of `path` once the block has ended without an error.

    Raises:
        UsageError: it cannot be written; what was there stays.
    """
    target = os.path.realpath(path)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".tclint-", dir=os.path.dirname(target))
        os.close(descriptor)
        yield temporary
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
