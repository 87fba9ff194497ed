"""The versions of torch and of other packages that a project's requirement files allow."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import NamedTuple

from tclint.source.project.folders import names_in, upwards
from tclint.source.project.noted import note

_FILES = re.compile(
    r"pyproject\.toml|setup\.py|setup\.cfg|Pipfile|(?:requirements?|environment|env|conda)[\w.\-]*\.(?:txt|in|ya?ml)",
    re.IGNORECASE,
)
_FOLDER = "requirements"
"""A folder whose text files count as requirement files of the folder above."""
_LARGEST_BYTES = 200_000
_BOUND = r"(?:===?|~=|<=|>=|!=|<|>|=|\^|~)\s*\d[\d.]*[\w.+*]*"
_PINS = {
    package: re.compile(
        rf"(?<![\w.\-/\[]){name}(?:\[[^\]]*\])?[\"']?\s*(?:[=:](?!=))?\s*(?:\{{\s*version\s*=\s*)?"
        rf"[\"']?\s*\(?\s*((?:{_BOUND}\s*,?\s*)+)",
        re.MULTILINE,
    )
    for package, name in (
        ("torch", "(?:py)?torch"),
        ("transformers", "transformers"),
        ("lightning", r"(?:pytorch[\-_])?lightning"),
        ("bitsandbytes", "bitsandbytes"),
    )
}
_PART = re.compile(r"(===?|~=|<=|>=|!=|<|>|=|\^|~)\s*(\d[\d.]*)")

Version = tuple[int, ...]


class Pin(NamedTuple):
    """A version requirement, and where it is written."""

    text: str
    """Bounds such as '>=1.7,<2.0'."""
    path: str
    line: int


def may_run(path: str, version: Version, package: str = "torch") -> bool:
    """Whether the project of a file allows this version or a newer one; True if nothing restricts it."""
    return refusing(path, version, package) is None


def refusing(path: str, version: Version, package: str = "torch") -> Pin | None:
    """The pin that keeps the project of a file from this version and newer ones; None if none does.

    Of the pins in one file, such as those for several releases of Python, each may be the one that counts;
    of several files each does, since whoever installs the project may follow any of them.
    """
    pins = pins_of(path, package)
    letting = {pin.path for pin in pins if allows(pin.text, version)}
    return next((pin for pin in pins if pin.path not in letting), None)


def oldest(path: str) -> Version | None:
    """The lower bound that the project of a file sets for torch; None if it sets none."""
    pins = pins_of(path, "torch")
    parts = [part for pin in pins for part in _PART.findall(pin.text)]
    lower = [_numbers(text) for operator, text in parts if operator not in ("<", "<=", "!=")]
    return min(lower, default=None)


def forget() -> None:
    """Read files anew."""
    pins_above.cache_clear()
    _pins.cache_clear()


def pins_of(path: str, package: str) -> tuple[Pin, ...]:
    """The version requirements for a package in the project of a file."""
    folder = os.path.dirname(os.path.abspath(path))
    found = pins_above(folder, package)
    note(found, "pins", folder, package)
    return found


@lru_cache(maxsize=4096)
def pins_above(folder: str, package: str) -> tuple[Pin, ...]:
    """The version requirements for a package in the nearest requirement files that name it."""
    for above in upwards(folder):
        pins = tuple(pin for path in _requirement_files(above) for pin in _pins(path, package))
        if pins:
            return pins
    return ()


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in text.strip(".").split("."))


def _requirement_files(folder: str) -> list[str]:
    found = [os.path.join(folder, name) for name in sorted(names_in(folder)) if _FILES.fullmatch(name)]
    inner = os.path.join(folder, _FOLDER)
    if _FOLDER in names_in(folder):
        found += [os.path.join(inner, name) for name in sorted(names_in(inner)) if name.endswith(".txt")]
    return found


def allows(pin: str, version: Version) -> bool:
    """Whether a requirement such as '>=1.7,<2.0' lets this version or a newer one be installed."""
    for operator, text in _PART.findall(pin):
        bound = _numbers(text)
        width = max(len(bound), len(version))
        padded = bound + (0,) * (width - len(bound))
        wanted = version + (0,) * (width - len(version))
        if operator == "<" and padded <= wanted:
            return False
        if operator in ("<=", "==", "===", "=") and padded < wanted and bound != version[: len(bound)]:
            return False
        if (operator == "~=" and len(bound) > 1) or operator in ("^", "~"):
            # Poetry's ^1.13 allows versions below 2, its ~1.13 versions below 1.14.
            kept = {"~=": len(bound) - 1, "^": 1, "~": min(len(bound), 2)}[operator]
            ceiling = (*bound[: kept - 1], bound[kept - 1] + 1)
            if ceiling + (0,) * (width - len(ceiling)) <= wanted:
                return False
    return True


@lru_cache(maxsize=1024)
def _pins(path: str, package: str) -> tuple[Pin, ...]:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_BYTES:
            return ()
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return ()
    return tuple(
        Pin(match[1].strip(), path, text.count("\n", 0, match.start(1)) + 1)
        for match in _PINS[package].finditer(text)
    )
