"""Wrappers for several processes, which a trace of one process sees through.

DistributedDataParallel and FullyShardedDataParallel keep their place in the module tree and their names, so
that `model.module` works and parameters are called what they are called in training; nothing is sent.
`fully_shard` hands back the module as it is, which computes the same.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tclint.tracing.patches.patch import calling_frame, nothing

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

    def get_group(self, *_: Any) -> ProcessGroupOfOne:
        """This process alone."""
        return ProcessGroupOfOne()


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
        found += replacements(distributed)
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


class ProcessGroupOfOne:
    """What `new_group` returns."""

    def size(self) -> int:
        """This process is all there is."""
        return 1

    def rank(self) -> int:
        """This process is the first."""
        return 0


class _Finished:
    """The handle of a transfer with `async_op`."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


_started: list[bool] = []
"""Not empty: the user's code started a group."""


def replacements(distributed: Any) -> list[tuple[Any, str, Any]]:
    """What stands for functions of `torch.distributed`."""
    found = {
        "init_process_group": _start,
        "destroy_process_group": _stop,
        "is_initialized": _is_started,
        "get_rank": _zero,
        "get_group_rank": _zero,
        "get_global_rank": _zero,
        "get_node_local_rank": _zero,
        "get_world_size": lambda *_, **__: 1,
        "get_process_group_ranks": lambda *_, **__: [0],
        "get_backend": lambda *_, **__: "nccl",
        "new_group": lambda *_, **__: ProcessGroupOfOne(),
        "monitored_barrier": nothing,
        **{name: _sent(carry) for name, carry in _TRANSFERS.items()},
    }
    return [(distributed, name, value) for name, value in found.items()]


def _start(*_args: Any, **_kwargs: Any) -> None:
    _started.append(True)


def _stop(*_args: Any, **_kwargs: Any) -> None:
    _started.clear()


def _is_started() -> bool:
    # torch's own layers ask in order to send something, and refuse tensors that are on no GPU.
    caller = calling_frame()
    asks = "" if caller is None else str(caller.f_globals.get("__name__"))
    return bool(_started) and asks.partition(".")[0] != "torch"


def _zero(*_args: Any, **_kwargs: Any) -> int:
    return 0


def _sent(carry: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(carry)
    def send(*args: Any, async_op: bool = False, **kwargs: Any) -> Any:
        # What is written to and what is read comes first, by position or by names that differ.
        carry(*args, *kwargs.values())
        return _Finished() if async_op else None

    return send


def _gather(tensor_list: list[Any], tensor: Any, *_: Any) -> None:
    _into(tensor_list[0], tensor)


def _gather_at_root(tensor: Any, gather_list: Any = None, *_: Any) -> None:
    if isinstance(gather_list, list):
        _into(gather_list[0], tensor)


def _exchange(output: list[Any], given: list[Any], *_: Any) -> None:
    _into(output[0], given[0])


def _scatter(output: Any, given: list[Any], *_: Any) -> None:
    _into(output, given[0])


def _copy(output: Any, given: Any, *_: Any) -> None:
    _into(output, given)


def _gather_objects(object_list: list[Any], obj: Any, *_: Any) -> None:
    object_list[0] = obj


def _into(output: torch.Tensor, given: torch.Tensor) -> None:
    output.view(given.shape).copy_(given)


_TRANSFERS: dict[str, Callable[..., None]] = {
    "all_gather": _gather,
    "all_gather_into_tensor": _copy,
    "all_gather_object": _gather_objects,
    "all_reduce": nothing,
    "all_to_all": _exchange,
    "all_to_all_single": _copy,
    "barrier": nothing,
    "broadcast": nothing,
    "broadcast_object_list": nothing,
    "gather": _gather_at_root,
    "reduce": nothing,
    "reduce_scatter": _scatter,
    "reduce_scatter_tensor": _copy,
}
