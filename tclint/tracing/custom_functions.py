"""Custom autograd functions: their forward runs with gradients off, yet is differentiable as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch


class _Listener(Protocol):
    in_custom_function: bool


_listeners: list[_Listener] = []


@contextlib.contextmanager
def watched_by(listener: _Listener) -> Iterator[None]:
    """Keep `listener.in_custom_function` up to date."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextlib.contextmanager
def patched_apply() -> Iterator[None]:
    """Let `Function.apply` run under inference mode and tell the listener; undone on exit.

    Also held while the user's file is imported, because `swish = Swish.apply` keeps what it finds there.
    """
    function: Any = torch.autograd.function.Function
    original = function.__dict__.get("apply")
    if original is None:
        yield
        return

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not _listeners:
            return original.__get__(None, cls)(*args, **kwargs)
        listener = _listeners[-1]
        before = listener.in_custom_function
        listener.in_custom_function = before or torch.is_grad_enabled()
        try:
            if not torch.is_inference_mode_enabled():
                return original.__get__(None, cls)(*args, **kwargs)
            # Inference tensors cannot be saved for a backward pass, so none must be prepared.
            with torch.no_grad():
                return original.__get__(None, cls)(*args, **kwargs)
        finally:
            listener.in_custom_function = before

    function.apply = classmethod(apply)
    try:
        yield
    finally:
        function.apply = original
