"""Knows which module runs and where each was constructed, by wrapping nn.Module; undone on exit."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from tclint.tracing.call_recorder import ModuleFrame
from tclint.tracing.recorder import Recorder
from tclint.tracing.sites import NOWHERE, SiteFinder, SitePair

_SITE_ATTRIBUTE = "_tclint_site"


def construct_site_of(module: nn.Module) -> SitePair:
    """Where the module was constructed, if that happened under `remembered_construction`."""
    pair: SitePair = module.__dict__.get(_SITE_ATTRIBUTE, NOWHERE)
    return pair


def named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module by qualified name, in torch's order; those with several names come with each of them.

    torch's own generators nest as deep as the modules do. A module inside itself is not entered again.
    """
    if type(model).named_modules is not nn.Module.named_modules:
        return list(model.named_modules(remove_duplicate=False))
    found: list[tuple[str, nn.Module]] = []
    waiting: list[tuple[str, nn.Module, frozenset[int]]] = [("", model, frozenset())]
    while waiting:
        name, module, owners = waiting.pop()
        found.append((name, module))
        if module._modules:
            prefix, inside = f"{name}." if name else "", owners | {id(module)}
            waiting += [
                (prefix + key, child, inside)
                for key, child in reversed(module._modules.items())
                if child is not None and id(child) not in inside
            ]
    return found


@contextlib.contextmanager
def remembered_construction(sites: SiteFinder) -> Iterator[None]:
    """Note on every module made inside the block the line that constructed it (copies keep it)."""
    initialise: Any = nn.Module.__init__

    def __init__(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        pair = sites.find_constructor(sys._getframe(1), self)
        initialise(self, *args, **kwargs)
        self.__dict__[_SITE_ATTRIBUTE] = pair

    nn.Module.__init__ = __init__
    try:
        yield
    finally:
        nn.Module.__init__ = initialise


@contextlib.contextmanager
def tracked_calls(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    """Tell the recorder which module of `model` runs, by its qualified name."""
    frames: dict[nn.Module, ModuleFrame] = {}
    for name, module in named_modules(model):
        if module not in frames:
            frames[module] = ModuleFrame(name, type(module).__name__, construct_site_of(module))
    call: Any = nn.Module.__call__
    stack, callers = recorder.modules, recorder.callers

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        frame = frames.get(self)
        if frame is None:
            # Made inside a forward, or kept outside the module tree.
            type_name = type(self).__name__
            path = f"{stack[-1].path}.<{type_name}>" if stack[-1].path else f"<{type_name}>"
            frame = frames[self] = ModuleFrame(path, type_name, construct_site_of(self))
        stack.append(frame)
        callers.append(None)
        try:
            # Not the compiled call: its operators would run outside the recorder.
            return self._call_impl(*args, **kwargs)
        finally:
            stack.pop()
            callers.pop()

    recorder.sites.mark_module_call(__call__.__code__)
    nn.Module.__call__ = __call__
    try:
        yield
    finally:
        nn.Module.__call__ = call
