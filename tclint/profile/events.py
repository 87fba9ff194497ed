"""The events of a Chrome trace, read one by one: a trace of any size is never in memory as a whole."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.core.units import bytes_text

SUFFIXES = (".json", ".json.gz")
MAX_BYTES = 2**31
"""The largest unpacked trace that is read: it has some ten million events, which take minutes."""

Event = dict[str, Any]

_CHUNK_BYTES = 2**20
_GAP = re.compile(r"[\s,]*")
_VALUE_BEGINS = frozenset('"{[-0123456789tfnNI')
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass
class EventFile:
    """One trace file: iterate over `events`; then `header` holds what stands beside them."""

    path: str
    header: dict[str, Any] = field(default_factory=dict)
    """The other keys of the document ('deviceProperties', 'distributedInfo', ...)."""

    def events(self) -> Iterator[Event]:
        """Every event in the order of the file.

        Raises:
            UsageError: the file cannot be read, is empty, cut off, too large, or no Chrome trace.
        """
        name = printable(self.path)
        try:
            if os.path.getsize(self.path) == 0:
                raise UsageError(f"The trace {name!r} is empty; was the profiler's export interrupted?")
            if not self.path.endswith(".gz"):
                _check_size(name, os.path.getsize(self.path))
            with open(self.path, "rb") as raw:
                is_packed = raw.read(2) == _GZIP_MAGIC
                raw.seek(0)
                stream: BinaryIO = gzip.GzipFile(fileobj=raw) if is_packed else raw  # type: ignore[assignment]
                yield from self._document(_Text(stream, name))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _cut(name) from error
        except FileNotFoundError:
            raise UsageError(
                f"There is no trace {name!r}; torch.profiler's export_chrome_trace writes one."
            ) from None
        except OSError as error:
            raise UsageError(f"Cannot read the trace {name!r}: {error.strerror or error}.") from error

    def _document(self, text: _Text) -> Iterator[Event]:
        first = text.peek()
        if first == "[":  # Chrome takes a bare list of events as well
            text.skip(1)
            yield from _list(text)
            return
        if first != "{":
            raise _no_json(text.name)
        text.skip(1)
        has_events = False
        while text.peek() != "}":
            key = text.value()
            if text.peek() != ":" or not isinstance(key, str):
                raise _no_json(text.name)
            text.skip(1)
            if key == "traceEvents" and text.peek() == "[":
                has_events = True
                text.skip(1)
                yield from _list(text)
            else:
                self.header[key] = text.value()
        if not has_events:
            raise UsageError(
                f"{text.name!r} is JSON but not a trace: it has no 'traceEvents'. tclint reads what "
                "torch.profiler's export_chrome_trace writes."
            )


def _list(text: _Text) -> Iterator[Event]:
    while text.peek() != "]":
        event = text.value()
        if isinstance(event, dict):
            yield event
    text.skip(1)


class _Text:
    """A window on the text of a file that moves forward as values are taken from it."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        # Names of operators hold control characters now and then.
        self._json = json.JSONDecoder(strict=False)
        self._buffer = ""
        self._at = 0
        self._read_bytes = 0

    def peek(self) -> str:
        """The next character that is neither space nor comma."""
        while True:
            self._at = _GAP.match(self._buffer, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                raise _cut(self.name)

    def skip(self, characters: int) -> None:
        self._at += characters

    def value(self) -> Any:
        """The next JSON value."""
        if self.peek() not in _VALUE_BEGINS:
            raise _no_json(self.name)
        size = _CHUNK_BYTES
        while True:
            problem: ValueError | None = None
            try:
                found, end = self._json.raw_decode(self._buffer, self._at)
            except ValueError as error:
                problem = error
            except RecursionError:
                raise _no_json(self.name) from None
            else:
                if end < len(self._buffer) or isinstance(found, dict | list | str):
                    self._at = end
                    return found
            # A value that breaks long before the end of what was read is wrong, not incomplete.
            if problem is not None and _is_broken(problem, len(self._buffer)):
                raise _no_json(self.name) from problem
            if not self._more(size):
                raise _cut(self.name)
            size *= 2

    def _more(self, size: int = _CHUNK_BYTES) -> bool:
        data = self._stream.read(size)
        self._read_bytes += len(data)
        _check_size(self.name, self._read_bytes)
        self._buffer = self._buffer[self._at :] + self._decode(data, not data)
        self._at = 0
        return bool(data)


def _is_broken(error: ValueError, length: int) -> bool:
    at = getattr(error, "pos", length)
    message = str(error)
    # An unterminated string is reported where it begins; keywords and numbers are short.
    return not message.startswith("Unterminated") and at < length - 16


def _check_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        raise UsageError(
            f"The trace {name!r} is larger than {bytes_text(MAX_BYTES)}; profile fewer steps "
            "(torch.profiler.schedule(active=3)), or without with_stack and profile_memory."
        )


def _cut(name: str) -> UsageError:
    return UsageError(
        f"The trace {name!r} ends in the middle: it was cut off. Export or copy it once more, after the "
        "profiler has stopped."
    )


def _no_json(name: str) -> UsageError:
    return UsageError(
        f"{name!r} is not JSON; tclint reads the .json and .json.gz files that torch.profiler's "
        "export_chrome_trace writes."
    )
