"""Traces of a target with some of its files edited: built from copies of what the target reads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.core.search_path import PROJECT_MARKS
from tclint.engine.fixes.files import is_small
from tclint.engine.model_pass import as_priced
from tclint.engine.padding_check import proved_plan
from tclint.graph.dims.coupled import CoupledDims
from tclint.graph.ops import Graph
from tclint.graph.weights.plan import WeightPlan
from tclint.tracing import TraceResult, shared_worker, trace_runs

_BESIDE = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".txt")
"""Files of a folder that a target may look for without opening them."""
_EDITABLE = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini")
_LARGEST_BYTES = 16 << 20
_MOST_BESIDE = 200


class Copies:
    """The files of one target, and its traces with other contents of some of them; a context manager."""

    def __init__(self, target: str, settings: Settings, read: Iterable[str]) -> None:
        self._target, self._settings = target, settings
        self.files = tuple(path for path in read if is_small(path, _LARGEST_BYTES))
        path = os.path.abspath(target.rpartition(":")[0])
        self._copied = _with_what_is_beside(self.files, {os.path.dirname(path), os.getcwd()})
        self._folder = os.path.realpath(tempfile.mkdtemp(prefix="tclint-fix-"))
        self._worker = shared_worker()
        self._count = 0

    def __enter__(self) -> Copies:
        self._worker.__enter__()
        return self

    @property
    def editable(self) -> tuple[str, ...]:
        """The files that may hold a size."""
        return tuple(path for path in self.files if path.endswith(_EDITABLE))

    def __exit__(self, *_: object) -> None:
        self._worker.__exit__(None, None, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    def trace(self, edited: Sequence[Mapping[str, bytes]]) -> list[TraceResult]:
        """What becomes of the target with these contents, by absolute path, in the place of the files' own.

        Lines and files of the graphs are those of the files themselves. Of several sets of inputs the first
        counts.
        """
        roots = [self._copy(contents) for contents in edited]
        try:
            runs = [(self._in(root), self._settings) for root in roots]
            found = dict(trace_runs(runs, jobs=self._settings.jobs, roots=roots))
            return [self._back(found[at][0], root) for at, root in enumerate(roots)]
        finally:
            for root in roots:
                shutil.rmtree(root, ignore_errors=True)

    def proved_plan(self, edited: Mapping[str, bytes], dims: CoupledDims, plan: WeightPlan) -> WeightPlan:
        """The plan with what runs of the target, as it is and with these contents, have shown of it."""
        roots = [self._copy({}), self._copy(edited)]
        try:
            sides = [(self._in(root), root) for root in roots]
            found = proved_plan(sides[0], sides[1], self._settings, dims, plan).to_json()
        finally:
            for root in roots:
                shutil.rmtree(root, ignore_errors=True)
        text = json.dumps(found)
        for root in roots:
            text = text.replace(root, "")
        return WeightPlan.from_json(json.loads(text))

    def as_priced(self, graph: Graph) -> Graph:
        """A traced graph as reports price it: with the loss that the settings name."""
        return as_priced(graph, self._settings)[0]

    def _in(self, root: str) -> str:
        path, colon, attribute = self._target.rpartition(":")
        return f"{root}{path}{colon}{attribute}" if os.path.isabs(path) else self._target

    def _copy(self, contents: Mapping[str, bytes]) -> str:
        self._count += 1
        root = os.path.join(self._folder, str(self._count))
        os.makedirs(root + os.getcwd(), exist_ok=True)
        for path in self._copied:
            place = root + path
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if path in contents:
                with open(place, "wb") as file:
                    file.write(contents[path])
            else:
                with contextlib.suppress(OSError):
                    shutil.copyfile(path, place)
        return root

    def _back(self, result: TraceResult, root: str) -> TraceResult:
        if result.graph is not None:
            text = result.graph.to_json().replace(root, "")
            return replace(result, target=self._target, graph=Graph.from_json(text))
        assert result.error is not None
        message = str(result.error).replace(root, "")
        error = TargetError(message, details=result.error.details.replace(root, ""))
        return replace(result, target=self._target, error=error)


def _with_what_is_beside(files: Sequence[str], listed: Iterable[str]) -> set[str]:
    """The files, others of folders where inputs are looked for, what marks packages and projects."""
    found = set(files)
    folders = {os.path.dirname(path) for path in files}
    for folder in folders.intersection(listed):
        with contextlib.suppress(OSError):
            names = [name for name in sorted(os.listdir(folder)) if name.endswith(_BESIDE)]
            found.update(os.path.join(folder, name) for name in names[:_MOST_BESIDE])
    above = set()
    for folder in folders:
        upper = folder
        while upper not in above and upper != os.path.dirname(upper):
            above.add(upper)
            upper = os.path.dirname(upper)
    for folder in above:
        for name in ("__init__.py", *PROJECT_MARKS):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                found.add(path)
    return {path for path in found if is_small(path, _LARGEST_BYTES)}
