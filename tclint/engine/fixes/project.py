"""The Python files of a target's project, and which of their code its trace ran."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from tclint.config.settings import Settings
from tclint.core.search_path import project_folder
from tclint.edits.sizes.unrun import UnrunCode
from tclint.engine.fixes.files import is_small, texts_of
from tclint.graph.ops import Graph
from tclint.source.project.scripts import Scripts
from tclint.source.syntax.discovery import discover

_MOST_FILES = 3000
_LARGEST_BYTES = 1 << 20


def unrun_code(target: str, graph: Graph, read: Collection[str], scripts: Sequence[str]) -> UnrunCode:
    """What a trace of the target left out, in the files beside it.

    Args:
        target: as it was given.
        graph: its trace.
        read: files that the target read.
        scripts: training code that was given beside it.
    """
    place, _, name = target.rpartition(":")
    path = graph.root_site.path if graph.root_site is not None else os.path.abspath(place)
    files = [*read, *_python_files(path), *map(os.path.abspath, scripts)]
    python = [
        file for file in dict.fromkeys(files) if file.endswith(".py") and is_small(file, _LARGEST_BYTES)
    ]
    sites = {site for op in graph.ops for site in (op.call_site, op.construct_site)} | {graph.root_site}
    ran = {(site.path, site.line) for site in sites if site is not None}
    module = os.path.splitext(os.path.basename(path))[0]
    words = {word for word in (name.rpartition(".")[2], module) if word.isidentifier()}
    texts = texts_of(python)
    project = Scripts({file: text.encode(errors="replace") for file, text in texts.items()})
    speaking = project.connected_with([path, *(place for place, _ in ran), *map(os.path.abspath, scripts)])
    return UnrunCode({file: texts[file] for file in texts if file in speaking}, frozenset(read), ran, words)


def _python_files(path: str) -> list[str]:
    """The Python files of the project around a file; those beside it where no project is found."""
    folder = os.path.dirname(path)
    top = project_folder(Path(folder))
    if top is not None:
        return discover((str(top),), Settings())[0][:_MOST_FILES]
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))][:_MOST_FILES]
    except OSError:
        return []
