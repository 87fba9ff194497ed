"""Where the imports of a target's file lead: folders that its project's own modules are found in."""

from __future__ import annotations

import ast
import os
from pathlib import Path

# What stands in the top folder of a project.
PROJECT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
# Folders looked at on the way up: deeper than sources lie in their projects.
_LEVELS = 6


def import_roots(path: str) -> list[str]:
    """Folders to look for absolute imports in, besides that of the file: nearest first.

    The working directory, the folder above the file's package, the project's top folder.
    """
    folder = Path(path).resolve().parent
    roots = [os.getcwd()]
    above = folder
    while (above / "__init__.py").exists():
        above = above.parent
    roots.append(str(above))
    levels = [folder, *folder.parents][:_LEVELS]
    top = next((level for level in levels if any((level / mark).exists() for mark in PROJECT_MARKS)), None)
    if top is not None:
        roots.append(str(top))
    return [root for root in dict.fromkeys(roots) if root != str(folder)]


def package_of(path: str) -> tuple[str, str] | None:
    """(folder, 'package.module') to import a file by that imports relatively; None where that cannot work."""
    file = Path(path).resolve()
    levels = _relative_levels(file)
    if not levels:
        return None
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists() or len(parts) <= levels:
        parts.insert(0, folder.name)
        if folder == folder.parent:
            return None
        folder = folder.parent
    if parts[-1] == "__init__":
        parts.pop()
    return None if any("." in part for part in parts) else (str(folder), ".".join(parts))


def _relative_levels(file: Path) -> int:
    """How many packages above it the file's relative imports reach into; 0: it has none."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return 0
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
