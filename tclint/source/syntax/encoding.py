"""The encoding of a Python file: UTF-8, or the one that its first bytes or lines state."""

from __future__ import annotations

import codecs
import io
import tokenize

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def encoding_of(data: bytes) -> tuple[bytes, str]:
    """The mark that a file begins with (b"" without one), and the name of the encoding of what follows.

    Raises:
        SyntaxError: its first lines name an encoding that Python does not know, or contradict the mark.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return mark, name
    if not any(b"coding" in line for line in data.split(b"\n", 2)[:2]):
        return b"", "utf-8"
    # Lines that are not UTF-8 are decode's to report, with the place.
    readable = data.decode("latin-1").encode("ascii", "replace")
    name, _ = tokenize.detect_encoding(io.BytesIO(readable).readline)
    return b"", name


def encoded_like(text: str, data: bytes) -> bytes:
    """The bytes of a text in the encoding, and with the mark, of the file that `data` was read from.

    Raises:
        SyntaxError: as `encoding_of`.
        UnicodeEncodeError: the encoding has no such character.
    """
    mark, name = encoding_of(data)
    return mark + text.encode(name)
