"""Wrappers for several processes, which a trace of one process sees through.

DistributedDataParallel and FullyShardedDataParallel keep their place in the module tree and their names, so
that `model.module` works and parameters are called what they are called in training; nothing is sent.
"""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

_WRAPPERS = {
    "torch.nn.parallel.distributed": ("DistributedDataParallel", "module"),
    "torch.distributed.fsdp.fully_sharded_data_parallel": (
        "FullyShardedDataParallel",
        "_fsdp_wrapped_module",
    ),
}


def plain_wrappers() -> list[tuple[Any, str, Any]]:
    """Replacements for the wrappers' __init__ and forward; of what is imported already."""
    found: list[tuple[Any, str, Any]] = []
    for module_name, (class_name, attribute) in _WRAPPERS.items():
        wrapper = getattr(sys.modules.get(module_name), class_name, None)
        if wrapper is not None:
            found += [(wrapper, "__init__", _init(attribute)), (wrapper, "forward", _forward(attribute))]
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and _is_idle(distributed):
        found += [
            (distributed, "init_process_group", lambda *_args, **_kwargs: None),
            (distributed, "get_rank", lambda *_args, **_kwargs: 0),
            (distributed, "get_world_size", lambda *_args, **_kwargs: 1),
            (distributed, "barrier", lambda *_args, **_kwargs: None),
        ]
    return found


def _is_idle(distributed: Any) -> bool:
    """Whether this torch can run several processes, and does not."""
    return bool(distributed.is_available() and not distributed.is_initialized())


def _init(attribute: str) -> Any:
    def __init__(self: nn.Module, module: nn.Module, *_args: Any, **_kwargs: Any) -> None:
        nn.Module.__init__(self)
        setattr(self, attribute, module)
        self.training_state = None  # FSDP's named_parameters asks for it

    return __init__


def _forward(attribute: str) -> Any:
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, attribute)(*args, **kwargs)

    return forward
