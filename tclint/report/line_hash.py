"""`primaryLocationLineHash`, computed as GitHub's upload action computes it.

The action adds this fingerprint where it is missing and complains where it differs from its own, so only
an equal one serves the action and the upload API alike. Of every line: the polynomial hash (base 37,
modulo 2^64) of the 100 UTF-16 units that follow from its start, blanks and tabs left out and all line
ends read as a line feed, with a mark after the file's last character and zeros behind it; then a colon
and how many lines of that hash there have been (github/codeql-action, src/fingerprints.ts).
"""

from __future__ import annotations

from array import array
from collections import Counter, deque

WINDOW = 100
BASE = 37
END_OF_FILE = 65535

_MODULUS = 2**64
_LEAVING = pow(BASE, WINDOW - 1, _MODULUS)


def line_hashes(text: str) -> list[str]:
    """The hash of every line, in order; an end of file behind a line end counts as a line."""
    units = _units(text)
    starts = [0, *(position + 1 for position, unit in enumerate(units[:-1]) if unit == 10)]
    window = deque(units[:WINDOW] + [0] * (WINDOW - len(units[:WINDOW])))
    value = 0
    for unit in window:
        value = (value * BASE + unit) % _MODULUS
    following = iter(units[WINDOW:])
    wanted = iter(starts)
    at = next(wanted)
    seen: Counter[int] = Counter()
    hashes = []
    for position in range(len(units)):
        if position == at:
            seen[value] += 1
            hashes.append(f"{value:x}:{seen[value]}")
            at = next(wanted, -1)
        entering = next(following, 0)
        value = ((value - window.popleft() * _LEAVING) * BASE + entering) % _MODULUS
        window.append(entering)
    return hashes


def _units(text: str) -> list[int]:
    """UTF-16 units that count, and the mark for the end of the file."""
    kept = text.replace("\r\n", "\n").replace("\r", "\n").replace(" ", "").replace("\t", "")
    units = array("H")
    units.frombytes(kept.encode("utf-16-le", "surrogatepass"))
    return [*units, END_OF_FILE]
