"""Knows which module runs and where each was constructed, by wrapping nn.Module; undone on exit."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.fx import GraphModule, Interpreter, Node

from tclint.tracing.patches.patch import calling_frame, interruption_point, patch, patched
from tclint.tracing.record.call_recorder import CallRecorder, ModuleFrame
from tclint.tracing.record.recorder import Recorder
from tclint.tracing.values.layers import remember_arguments
from tclint.tracing.values.sites import NOWHERE, SiteFinder, SitePair


def run_graph_module(
    recorder: CallRecorder, module: GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """What the module returns; its operators are recorded with the modules and lines of its nodes."""
    if kwargs:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args = (*bound.args, *bound.kwargs.values())
    return _Carrying(recorder, module).run(*args)


class _Carrying(Interpreter):
    def __init__(self, recorder: CallRecorder, module: GraphModule) -> None:
        super().__init__(module)
        self._recorder = recorder

    def run_node(self, n: Node) -> Any:
        before = self._recorder.carried
        self._recorder.carried = n, len(self._recorder.modules)
        try:
            return super().run_node(n)
        finally:
            self._recorder.carried = before


_SITE_ATTRIBUTE = "_tclint_site"


def construct_site_of(module: nn.Module) -> SitePair:
    """Where the module was constructed, if that happened under `remembered_construction`."""
    pair: SitePair = module.__dict__.get(_SITE_ATTRIBUTE, NOWHERE)
    return pair


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module by qualified name, in torch's order; those with several names come with each of them.

    torch's own generators nest as deep as the modules do. A module inside itself is not entered again.
    """
    if type(model).named_modules is not nn.Module.named_modules:
        yield from model.named_modules(remove_duplicate=False)
        return
    yield "", model
    inside = {id(model)}
    entered = [("", model, iter(model._modules.items()))]
    while entered:
        prefix, owner, children = entered[-1]
        for key, child in children:
            if child is None or id(child) in inside:
                continue
            name = prefix + key
            yield name, child
            if child._modules:
                inside.add(id(child))
                entered.append((f"{name}.", child, iter(child._modules.items())))
                break
        else:
            entered.pop()
            inside.discard(id(owner))


_UNDONE = "when the block ends; in a worker, which only builds and traces models, with the process"


class _Watched:
    """Who is told what the wrapped methods of nn.Module see."""

    sites: SiteFinder | None = None
    """Finds the line that constructs a module, while that is asked for."""
    call: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any] | None = None
    """Calls a module, while calls are tracked."""


_watched = _Watched()
_MARK = "_wrapped_by_tclint"


def wrap_modules() -> None:
    """Wrap nn.Module's methods for good, in a process that only builds and traces models.

    To set a method of nn.Module is to visit every class that is derived from it, thousands with the large
    libraries, whose memory a forked process then has to copy.
    """
    for owner, name, wrapper in _wrappers():
        setattr(owner, name, wrapper)


def _wrappers() -> list[tuple[Any, str, Any]]:
    initialise: Any = nn.Module.__init__
    call: Any = nn.Module.__call__

    def __init__(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        sites = _watched.sites
        if sites is None:
            initialise(self, *args, **kwargs)
            return
        interruption_point()
        frame = calling_frame()
        pair = sites.find_constructor(frame, self)
        initialise(self, *args, **kwargs)
        self.__dict__[_SITE_ATTRIBUTE] = pair
        if frame is not None:
            remember_arguments(self, frame)

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        watched = _watched.call
        return call(self, *args, **kwargs) if watched is None else watched(self, args, kwargs)

    for wrapper in (__init__, __call__):
        setattr(wrapper, _MARK, True)
    return [(nn.Module, "__init__", __init__), (nn.Module, "__call__", __call__)]


@contextlib.contextmanager
def _wrapped_modules() -> Iterator[None]:
    """For the length of the block, where they are not wrapped, or somebody exchanged them since."""
    if all(hasattr(method, _MARK) for method in (nn.Module.__init__, nn.Module.__call__)):
        yield
        return
    with patched(_wrappers()):
        yield


@patch(
    replaces="`nn.Module.__init__`",
    why="every module made inside the block keeps the line that constructed it, and the sizes that it was "
    "given (copies keep them too)",
    undone=_UNDONE,
)
def remembered_construction(sites: SiteFinder) -> Iterator[None]:
    with _wrapped_modules(), patched([(_watched, "sites", sites)]):
        yield


@patch(
    replaces="`nn.Module.__call__`",
    why="the recorder has to know which module runs, by its qualified name",
    undone=_UNDONE,
)
def tracked_calls(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    frames: dict[nn.Module, ModuleFrame | str] = {}  # by its path alone until a module is called
    for name, module in named_modules(model):
        frames.setdefault(module, name)
    modules, callers, stacks = recorder.modules, recorder.callers, recorder.stacks

    def call(self: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        frame = frames.get(self)
        if frame is None or isinstance(frame, str):
            type_name = type(self).__name__
            path = frame
            if path is None:  # made inside a forward, or kept outside the module tree
                path = f"{modules[-1].path}.<{type_name}>" if modules[-1].path else f"<{type_name}>"
            in_full = f"{type(self).__module__}.{type(self).__qualname__}"
            frame = frames[self] = ModuleFrame(path, in_full, construct_site_of(self))
        modules.append(frame)
        callers.append(None)
        stacks.append(None)
        try:
            if isinstance(self, GraphModule):
                return run_graph_module(recorder, self, args, kwargs)
            # Not the compiled call: its operators would run outside the recorder.
            return self._call_impl(*args, **kwargs)
        finally:
            modules.pop()
            callers.pop()
            stacks.pop()

    recorder.sites.mark_module_call(call.__code__)
    with _wrapped_modules(), patched([(_watched, "call", call)]):
        yield
