"""Custom autograd functions: their forward runs with gradients off, yet is differentiable as a whole.

torch.utils.checkpoint is one of them, or a generator around the call, by its `use_reentrant`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from tclint.graph.ops.op import Checkpoint
from tclint.tracing.patches.autocast import casts_to_float32
from tclint.tracing.patches.patch import patch, patched


class _Listener(Protocol):
    autocast_disabled: bool
    in_custom_function: bool
    has_own_backward: bool
    checkpoint: Checkpoint | None
    checkpoints: int


_listeners: list[_Listener] = []


@contextlib.contextmanager
def watched_by(listener: _Listener) -> Iterator[None]:
    """Keep the listener's attributes up to date."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@patch(
    replaces="`torch.autograd.Function.apply`",
    why="it refuses inference tensors, and the recorder has to know which operators have a backward of their "
    "own; held while the user's file is imported as well, where `swish = Swish.apply` keeps what it finds",
)
def patched_apply() -> Iterator[None]:
    function: Any = torch.autograd.function.Function
    original = function.__dict__.get("apply")
    if original is None:
        yield
        return

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not _listeners:
            return original.__get__(None, cls)(*args, **kwargs)
        if cls.__name__ == "CheckpointFunction" and cls.__module__ == "torch.utils.checkpoint":
            with _region(is_reentrant=True):
                return inside(cls, args, kwargs, has_own_backward=False)
        return inside(cls, args, kwargs, has_own_backward=True)

    def inside(cls: Any, args: Any, kwargs: Any, *, has_own_backward: bool) -> Any:
        listener = _listeners[-1]
        before = listener.in_custom_function, listener.has_own_backward, listener.autocast_disabled
        listener.in_custom_function = before[0] or torch.is_grad_enabled()
        listener.has_own_backward = before[1] or (has_own_backward and listener.in_custom_function)
        listener.autocast_disabled = before[2] or casts_to_float32(cls)
        try:
            if not torch.is_inference_mode_enabled():
                return original.__get__(None, cls)(*args, **kwargs)
            # Inference tensors cannot be saved for a backward pass, so none must be prepared.
            with torch.no_grad():
                return original.__get__(None, cls)(*args, **kwargs)
        finally:
            (listener.in_custom_function, listener.has_own_backward, listener.autocast_disabled) = before

    with patched([(function, "apply", classmethod(apply))]):
        yield


@patch(
    replaces="`_checkpoint_without_reentrant_generator` and `_infer_device_type` of `torch.utils.checkpoint`",
    why="it saves inputs for a backward pass, which inference tensors do not allow, and the recorder has to "
    "know which operators run again; older versions (2.4) ask for a module of torch named meta",
)
def visible_checkpoints() -> Iterator[None]:
    checkpoint = sys.modules.get("torch.utils.checkpoint")
    name = "_checkpoint_without_reentrant_generator"
    # torch 2.14 calls the second.
    regions = [(checkpoint, own, _checkpointed_region) for own in (name, f"{name}_impl")]
    with patched([*regions, (checkpoint, "_infer_device_type", lambda *_args: "cpu")]):
        yield


def _checkpointed_region(*_args: Any, **_kwargs: Any) -> Iterator[None]:
    with _region(is_reentrant=False):
        yield


@contextlib.contextmanager
def _region(*, is_reentrant: bool) -> Iterator[None]:
    if not _listeners:
        yield
        return
    listener = _listeners[-1]
    before = listener.checkpoint
    listener.checkpoints += 1
    listener.checkpoint = Checkpoint(listener.checkpoints, is_reentrant)
    try:
        yield
    finally:
        listener.checkpoint = before
