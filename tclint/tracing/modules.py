"""Knows which module runs and where each was constructed, by wrapping nn.Module; undone on exit."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
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


class _Watched:
    """What the wrapped methods of nn.Module tell, and whom."""

    sites: SiteFinder | None = None
    """Finds the line that constructs a module, while that is asked for."""
    calls: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any] | None = None
    """Calls a module, while calls are tracked."""
    methods: tuple[Any, Any] | None = None
    """torch's own __init__ and __call__, while they are wrapped."""


_watched = _Watched()


def wrap_modules() -> None:
    """Wrap nn.Module's methods for good, in a process that only builds and traces models.

    To set a method of nn.Module is to visit every class that is derived from it, thousands with the large
    libraries, whose memory a forked process then has to copy.
    """
    if _watched.methods is not None:
        return
    initialise: Any = nn.Module.__init__
    call: Any = nn.Module.__call__
    _watched.methods = initialise, call

    def __init__(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        sites = _watched.sites
        if sites is None:
            initialise(self, *args, **kwargs)
            return
        pair = sites.find_constructor(sys._getframe(1), self)
        initialise(self, *args, **kwargs)
        self.__dict__[_SITE_ATTRIBUTE] = pair

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        calls = _watched.calls
        return call(self, *args, **kwargs) if calls is None else calls(self, args, kwargs)

    nn.Module.__init__ = __init__
    nn.Module.__call__ = __call__


def _unwrap_modules() -> None:
    assert _watched.methods is not None
    nn.Module.__init__, nn.Module.__call__ = _watched.methods
    _watched.methods = None


@contextlib.contextmanager
def _wrapped_modules() -> Iterator[None]:
    """For the length of the block, where that was not done for good or by a block around this one."""
    if _watched.methods is not None:
        yield
        return
    wrap_modules()
    try:
        yield
    finally:
        _unwrap_modules()


@contextlib.contextmanager
def remembered_construction(sites: SiteFinder) -> Iterator[None]:
    """Note on every module made inside the block the line that constructed it (copies keep it)."""
    before = _watched.sites
    with _wrapped_modules():
        _watched.sites = sites
        try:
            yield
        finally:
            _watched.sites = before


@contextlib.contextmanager
def tracked_calls(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    """Tell the recorder which module of `model` runs, by its qualified name."""
    frames: dict[nn.Module, ModuleFrame] = {}
    for name, module in named_modules(model):
        if module not in frames:
            frames[module] = ModuleFrame(name, type(module).__name__, construct_site_of(module))
    stack, callers = recorder.modules, recorder.callers

    def call(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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

    recorder.sites.mark_module_call(call.__code__)
    before = _watched.calls
    with _wrapped_modules():
        _watched.calls = call
        try:
            yield
        finally:
            _watched.calls = before
