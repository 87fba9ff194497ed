"""torch.distributed as a process finds it that is alone in its group: what is sent comes back at once.

Its rank is 0 of 1 even before `init_process_group`, for a model whose script would have started a group;
`is_initialized` tells whether one was started.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tclint.tracing.patches.patch import calling_frame, nothing


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
