"""Modules of torch that user code may import while a model is built or run."""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from collections.abc import Iterator
from typing import Any

from tclint.tracing.patches.distributed import MODULES, plain_wrappers
from tclint.tracing.patches.higher_order import SCANS, generic_scans
from tclint.tracing.patches.patch import patch, patched
from tclint.tracing.patches.stored_weights import LIBRARIES, library_loaders

_LATE_MODULES = frozenset({*MODULES, SCANS, *LIBRARIES})


@patch(
    replaces="`DistributedDataParallel`, `FullyShardedDataParallel` (`__init__`, `forward`), `fully_shard`, "
    "`init_device_mesh`, `parallelize_module`, `associative_scan`, and of `torch.distributed` "
    "`init_process_group`, `get_rank`, `get_world_size`, `barrier`; `load_file` of safetensors, "
    "`load_pretrained` of timm, `PreTrainedModel.from_pretrained` of transformers",
    why="they need other processes, a GPU or stored weights; a finder in `sys.meta_path` patches what is "
    "imported later",
)
def single_process() -> Iterator[None]:
    done = _replacements()
    with patched(done), contextlib.ExitStack() as undo:
        finder = _PatchingFinder(done, undo)
        sys.meta_path.insert(0, finder)
        undo.callback(sys.meta_path.remove, finder)
        yield


def _replacements() -> list[tuple[Any, str, Any]]:
    """Of what is imported already."""
    return [*plain_wrappers(), *generic_scans(), *library_loaders()]


class _PatchingFinder:
    """Patches modules that are imported while it stands in sys.meta_path.

    Args:
        done: the replacements of those that were imported before.
        undo: takes back the others.
    """

    def __init__(self, done: list[tuple[Any, str, Any]], undo: contextlib.ExitStack) -> None:
        self._done = done
        self._undo = undo

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _LATE_MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader = spec.loader if spec is not None else None
        if spec is None or loader is None:
            return None
        run = loader.exec_module

        def run_and_patch(module: Any) -> None:
            run(module)
            known = {(id(owner), attribute) for owner, attribute, _ in self._done}
            new = [item for item in _replacements() if (id(item[0]), item[1]) not in known]
            self._done.extend(new)
            self._undo.enter_context(patched(new))

        loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec
