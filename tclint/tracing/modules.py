"""Knows which module runs and where each was constructed, by wrapping nn.Module; undone on exit."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from tclint.tracing.recorder import ModuleFrame, Recorder
from tclint.tracing.sites import NOWHERE, SiteFinder, SitePair

_SITE_ATTRIBUTE = "_tclint_site"


def construct_site_of(module: nn.Module) -> SitePair:
    """Where the module was constructed, if that happened under `remembered_construction`."""
    pair: SitePair = module.__dict__.get(_SITE_ATTRIBUTE, NOWHERE)
    return pair


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
    frames: dict[nn.Module, ModuleFrame] = {
        module: ModuleFrame(name, type(module).__name__, construct_site_of(module))
        for name, module in model.named_modules()
    }
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
