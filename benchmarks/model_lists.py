#!/usr/bin/env python
"""Judge what `tclint models` lists in public repositories against hand-made labels.

    python benchmarks/model_lists.py --repositories ~/checkouts
    python benchmarks/model_lists.py --repositories ~/checkouts --verbose     # names what is missing or false

model_lists.toml has the labels. A label is a wanted one if a pattern of `wanted` matches it; those that exist
are the module classes and functions of the repository whose name the pattern fits, found by name alone, so
that a candidate that the listing does not see still counts as missing. --repositories is a folder of
checkouts, named OWNER+NAME or NAME.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tclint.config.settings import Settings
from tclint.core.toml import parse_toml
from tclint.engine.model_listing.candidates import list_models
from tclint.source.syntax.discovery import discover

LABELS = Path(__file__).with_name("model_lists.toml")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repositories", type=Path, required=True, help="folder of checkouts")
    parser.add_argument("--verbose", action="store_true", help="name what is missing and what is false")
    arguments = parser.parse_args()
    rows = parse_toml(LABELS.read_text())["repository"]
    for held_out in (False, True):
        wanted = found = false = listed = repositories = 0
        for row in rows:
            folder = _checkout(arguments.repositories, row["name"])
            if row.get("held_out", False) != held_out or folder is None:
                continue
            names, labels = _listed(folder), _labels(folder, row)
            missing = sorted(labels - names)
            wrong = sorted(name for name in names if not _matches(name, row))
            repositories += 1
            wanted, found = wanted + len(labels), found + len(labels & names)
            listed, false = listed + len(names), false + len(wrong)
            if arguments.verbose:
                print(f"{row['name']}: {len(labels & names)} of {len(labels)}, {len(wrong)} false")
                for title, items in (("missing", missing), ("false", wrong)):
                    for item in items:
                        print(f"    {title} {item}")
        print(
            f"{'held out' if held_out else 'tuned on'}: {repositories} repositories, "
            f"{found} of {wanted} wanted are listed ({100 * found / max(1, wanted):.1f} %); "
            f"{false} of {listed} listed are false ({100 * false / max(1, listed):.1f} %)"
        )
    return 0


def _checkout(root: Path, name: str) -> Path | None:
    folders = (root / name.replace("/", "+"), root / name.rpartition("/")[2])
    return next((folder for folder in folders if folder.is_dir()), None)


def _listed(folder: Path) -> set[str]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        found, _ = list_models(discover(["."], Settings())[0])
    finally:
        os.chdir(before)
    return {f"{os.path.relpath(item.path, folder.resolve())}:{item.name}" for item in found}


def _labels(folder: Path, row: dict[str, Any]) -> set[str]:
    names = (name for path in sorted(folder.rglob("*.py")) for name in _defined(folder, path))
    return {name for name in names if _any(name, row["wanted"]) and not _any(name, EXCEPT)}


EXCEPT = ["*Block", "*:test*", "*:*Loss"]
"""Never wanted, whatever a pattern says."""


def _matches(name: str, row: dict[str, Any]) -> bool:
    patterns = row["wanted"] + row.get("allowed", [])
    return _any(name, patterns) and not _any(name, EXCEPT)


def _any(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _defined(folder: Path, path: Path) -> Iterator[str]:
    """Public top-level functions and classes."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{path.relative_to(folder).as_posix()}:{node.name}"


if __name__ == "__main__":
    raise SystemExit(main())
