"""Compiled, scripted and exported modules run as the Python they were made of."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tclint.tracing.patches.patch import calling_frame, itself, patch, patched


@patch(
    replaces="`torch.compile`, `nn.Module.compile`",
    why="Dynamo would trace the model itself, and its code would run outside the recorder",
)
def without_compilation() -> Iterator[None]:
    with patched([(torch, "compile", _not_compiled), (nn.Module, "compile", _module_not_compiled)]):
        yield


def remember_compiled(module: nn.Module) -> None:
    """Note a module that is traced without what compiled it."""
    with contextlib.suppress(TypeError):  # a class with __eq__ and no __hash__
        _COMPILED.add(module)


def is_compiled(module: nn.Module) -> bool:
    """Whether the model's own code, or the caller that hands the module over, compiles it."""
    # By its name: importing torch._dynamo takes a second.
    if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
        return True
    with contextlib.suppress(TypeError):  # a class with __eq__ and no __hash__
        return module in _COMPILED or inspect.getattr_static(type(module), "forward") in _COMPILED
    return False


@patch(
    replaces="`torch.jit.script`, `torch.jit.script_if_tracing`, `torch.jit.trace`, `torch.jit.load`",
    why="a scripted module calls its operators without Python, so no line of it could be named",
)
def without_scripting() -> Iterator[None]:
    real = torch.jit.script

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        # Forward-mode derivatives are scripted on first use, and needed as scripts.
        caller = calling_frame()
        if caller and caller.f_globals.get("__name__") == "torch._decomp.decompositions_for_jvp":
            state = getattr(getattr(torch.jit, "_state", None), "_enabled", None)
            with patched([(state, "enabled", True), (torch.jit, "script", real)]):
                return real(obj, *args, **kwargs)
        return obj

    with patched(
        [
            (torch.jit, "script", script),
            (torch.jit, "script_if_tracing", itself),
            (torch.jit, "trace", itself),
            (torch.jit, "load", _no_archive),
        ]
    ):
        yield


@patch(
    replaces="`torch.export.export`",
    why="its fake tensors and the recorder's meta tensors do not mix, and an exported module names no line",
)
def without_exporting() -> Iterator[None]:
    with patched([(torch.export, "export", NotExported)]):
        yield


class NotExported:
    """Stands for the exported program of a model while that is built: it is the model itself."""

    def __init__(
        self, mod: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        self._model = mod
        with contextlib.suppress(TypeError):  # a class with __eq__ and no __hash__
            _EXPORTED_WITH[mod] = args
            if kwargs:
                _EXPORTED_WITH[mod] = inspect.signature(mod.forward).bind(*args, **kwargs).arguments

    def module(self, *_: Any, **__: Any) -> nn.Module:
        """The model."""
        return self._model

    @property
    def graph_module(self) -> nn.Module:
        """The model."""
        return self._model

    def run_decompositions(self, *_: Any, **__: Any) -> NotExported:
        """The same: the parts that operators have on a GPU are known."""
        return self


def exported_with(model: nn.Module) -> Any:
    """The inputs with which the code that built a model wanted to export it; None where it did not."""
    with contextlib.suppress(TypeError):
        return _EXPORTED_WITH.get(model)
    return None


_EXPORTED_WITH: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()
_COMPILED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules, and `forward` functions of classes, that were to be compiled."""
_COMPILE_NOTHING = ("eager", "aot_eager", "tclint")
"""Backends that run what they get as it is."""


def _not_compiled(model: Any = None, **options: Any) -> Any:
    # Used as a function, and as a decorator with options.
    if model is None:
        return lambda function: _not_compiled(function, **options)
    if not options.get("disable") and options.get("backend") not in _COMPILE_NOTHING:
        owner = getattr(model, "__self__", None)
        with contextlib.suppress(TypeError):
            # `model.forward = torch.compile(model.forward)` is `model.compile()`.
            is_forward = getattr(model, "__name__", "") == "forward" and owner is not None
            _COMPILED.add(owner if is_forward else model)
    return model


def _module_not_compiled(module: nn.Module, *_args: Any, **options: Any) -> None:
    _not_compiled(module, **options)


def _no_archive(*_args: Any, **_kwargs: Any) -> Any:
    raise RuntimeError("a TorchScript archive holds no Python to trace; build the model from its source")
