"""A project's own packages as Python would import them, and the packages that its files lack here."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tclint.core.search_path import project_folder
from tclint.core.toml import parse_toml
from tclint.tracing.stand_ins.absent import is_absent
from tclint.tracing.values.user_code import tree_of
from tclint.tracing.worker.project_files import setup_text, source_folders

_MOST_FILES = 200
"""Read for what they import."""


class OwnPackages(MetaPathFinder):
    """Finds some packages where the project has them, though a release of them may be installed."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        """Args:
        roots: the folder of each package, by its name.
        """
        self._roots = roots

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As importlib asks for it."""
        root = self._roots.get(name) if path is None else None
        return None if root is None else PathFinder.find_spec(name, [root], target)


def own_packages(path: str) -> dict[str, str]:
    """The package that a file lies in, and the one that its project is named after, with their folders.

    No other folder of the project: one of tests or utilities must not hide a library.
    """
    found: dict[str, str] = {}
    dotted = name_in_package(path)
    if dotted is not None:
        found[dotted[1].partition(".")[0]] = dotted[0]
    top = project_folder(Path(path).resolve().parent)
    for name in _project_names(top) if top is not None else ():
        for folder in source_folders(top) if top is not None else ():
            if (Path(folder) / name / "__init__.py").exists():
                found.setdefault(name, folder)
    return {
        name: root
        for name, root in found.items()
        if name not in sys.modules and name not in sys.stdlib_module_names
    }


def name_in_package(path: str) -> tuple[str, str] | None:
    """(folder, 'package.module') of a file that lies in a package; None for a script."""
    file = Path(path).resolve()
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    if parts[-1] == "__init__":
        parts.pop()
    in_package = len(parts) > 1 or file.stem == "__init__"
    return (str(folder), ".".join(parts)) if in_package and all(map(str.isidentifier, parts)) else None


_NAME = re.compile(r"\bname\s*=\s*[\"']?([\w.-]+)")


def _project_names(top: Path) -> Iterator[str]:
    """As packages are named that a distribution of that name holds."""
    document: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        document = parse_toml(setup_text(top, "pyproject.toml"))
    stated = [document.get("project", {}).get("name"), document.get("tool", {}).get("poetry", {}).get("name")]
    for file in ("setup.cfg", "setup.py"):
        stated += _NAME.findall(setup_text(top, file))
    for name in stated:
        if isinstance(name, str):
            yield re.sub(r"[-.]", "_", name)


_REQUIREMENTS = ("requirements*.txt", "requirements/*.txt", "environment*.y*ml")
_INSTALLED_BY_HAND = re.compile(r"(?:pip3?|conda) install\b[^\n]*")


def asked_for(path: str, packages: Sequence[str]) -> list[str]:
    """Those of the packages that a file's project says it needs, or that its README says to install."""
    top = project_folder(Path(path).resolve().parent)
    if top is None:
        return []
    texts = [_text(file) for pattern in _REQUIREMENTS for file in sorted(top.glob(pattern))]
    # A trace does not rest on the settings that stand in these.
    texts += [setup_text(top, file) for file in ("setup.cfg", "setup.py", "pyproject.toml")]
    texts += _INSTALLED_BY_HAND.findall(setup_text(top, "README.md"))
    needed = "\n".join(re.sub(r"#.*", "", text) for text in texts).lower()
    return [
        name for name in packages if re.search(rf"(?<![\w-]){name.replace('_', '[-_]')}(?![\w-])", needed)
    ]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def missing_packages(path: str, roots: Sequence[str]) -> list[str]:
    """What a file, and those of its project that it imports, import in any case and is not installed here.

    Args:
        roots: folders that hold the project's modules.
    """
    found: list[str] = []
    waiting, seen = [os.path.abspath(path)], set[str]()
    while waiting and len(seen) < _MOST_FILES:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        for dotted, level in _imports(current):
            local = _local_file(dotted, level, current, roots)
            package = dotted.partition(".")[0]
            if local is not None:
                waiting.append(local)
            elif not level and package not in found and not _is_here(package):
                found.append(package)
    return found


def _imports(path: str) -> Iterator[tuple[str, int]]:
    """What runs whenever a file is imported: not what stands in a function, a condition or a try."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level
            inside = f"{node.module}." if node.module else ""
            yield from ((f"{inside}{alias.name}", node.level) for alias in node.names)


def _local_file(dotted: str, level: int, importing: str, roots: Sequence[str]) -> str | None:
    folder = Path(importing).parent
    for _ in range(level - 1):
        folder = folder.parent
    places = [folder] if level else [folder, *map(Path, roots)]
    parts = dotted.split(".") if dotted else []
    for place in places:
        base = place.joinpath(*parts)
        for file in (base.with_name(base.name + ".py"), base / "__init__.py"):
            if file.is_file():
                return str(file)
    return None


def _is_here(package: str) -> bool:
    try:
        return not is_absent(package) and (package in sys.modules or find_spec(package) is not None)
    except (ImportError, ValueError, AttributeError):
        return False
