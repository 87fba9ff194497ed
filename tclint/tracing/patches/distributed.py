"""Wrappers for several processes, which a trace of one process sees through.

DistributedDataParallel and FullyShardedDataParallel keep their place in the module tree and their names, so
that `model.module` works and parameters are called what they are called in training; nothing is sent.
`fully_shard` hands back the module as it is, which computes the same.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Sequence
from typing import Any

from torch import nn

from tclint.tracing.patches import process_group

_WRAPPERS = {
    "torch.nn.parallel.distributed": ("DistributedDataParallel", "module"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": (
        "FullyShardedDataParallel",
        "_fsdp_wrapped_module",
    ),
}


class SingleProcessMesh:
    """A device mesh whose other devices are not there: it has their number and their names."""

    def __init__(self, device_type: str, mesh_shape: Sequence[int], mesh_dim_names: Any = None) -> None:
        self.device_type = device_type
        self.shape = tuple(mesh_shape)
        self.ndim = len(self.shape)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None

    def __getitem__(self, names: str | tuple[str, ...]) -> SingleProcessMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        sizes = dict(zip(self.mesh_dim_names or (), self.shape, strict=False))
        return SingleProcessMesh(self.device_type, [sizes[name] for name in wanted], wanted)

    def size(self, mesh_dim: int | None = None) -> int:
        """The size of one dim, or of the whole mesh."""
        if mesh_dim is not None:
            return self.shape[mesh_dim]
        product = 1
        for size in self.shape:
            product *= size
        return product

    def get_rank(self) -> int:
        """This process is the first."""
        return 0

    def get_local_rank(self, *_: Any) -> int:
        """This process is the first."""
        return 0

    def get_group(self, *_: Any) -> process_group.ProcessGroupOfOne:
        """This process alone."""
        return process_group.ProcessGroupOfOne()


def _fully_shard(module: Any, *_args: Any, **_kwargs: Any) -> Any:
    return module


def _init_device_mesh(device_type: str, mesh_shape: Any, *, mesh_dim_names: Any = None, **_: Any) -> Any:
    return SingleProcessMesh(device_type, mesh_shape, mesh_dim_names)


def _parallelize_module(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("parallelize_module splits layers over a process group")


# Functions that user code may have imported by name: what they do is exchanged, not what the name holds.
_FUNCTIONS = {
    "torch.distributed.fsdp._fully_shard._fully_shard": ("fully_shard", _fully_shard),
    "torch.distributed._composable.fsdp.fully_shard": ("fully_shard", _fully_shard),
    "torch.distributed.device_mesh": ("init_device_mesh", _init_device_mesh),
    "torch.distributed.tensor.parallel.api": ("parallelize_module", _parallelize_module),
}
MODULES = frozenset({*_WRAPPERS, *_FUNCTIONS, "torch.distributed"})
"""Those that have something to replace."""


def plain_wrappers() -> list[tuple[Any, str, Any]]:
    """Replacements for what spreads a model over processes; of what is imported already."""
    found: list[tuple[Any, str, Any]] = []
    for module_name, (class_name, attribute) in _WRAPPERS.items():
        wrapper = getattr(sys.modules.get(module_name), class_name, None)
        if wrapper is not None:
            found += [(wrapper, "__init__", _init(attribute)), (wrapper, "forward", _forward(attribute))]
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and _is_idle(distributed):
        for module_name, (name, substitute) in _FUNCTIONS.items():
            function = getattr(sys.modules.get(module_name), name, None)
            function = inspect.unwrap(function) if callable(function) else None
            if inspect.isfunction(function) and not function.__code__.co_freevars:
                found.append((function, "__code__", substitute))
        found += process_group.replacements(distributed)
    return found


def _is_idle(distributed: Any) -> bool:
    """Whether this torch can run several processes, and does not."""
    return bool(distributed.is_available() and not distributed.is_initialized())


@functools.cache
def _init(attribute: str) -> Any:
    def __init__(self: nn.Module, module: nn.Module, *_args: Any, **_kwargs: Any) -> None:
        nn.Module.__init__(self)
        setattr(self, attribute, module)
        self.training_state = None  # FSDP's named_parameters asks for it

    return __init__


@functools.cache
def _forward(attribute: str) -> Any:
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, attribute)(*args, **kwargs)

    return forward
