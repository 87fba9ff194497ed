"""Runs a program in this process until it makes a model or calls it, and records what it passes."""

from __future__ import annotations

import argparse
import builtins
import contextlib
import functools
import importlib.util
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch import nn

from tclint.core.saved import to_json
from tclint.core.search_path import project_folder
from tclint.tracing.patches.devices import DeviceRewriter
from tclint.tracing.patches.environment import without_gpu
from tclint.tracing.patches.patch import patched
from tclint.tracing.patches.stored_weights import random_weights, without_initialisation
from tclint.tracing.patches.writes import no_training, nothing_written
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.program.seen import ProgramCall, ProgramRun
from tclint.tracing.worker.program.texts import Texts, inputs_of
from tclint.tracing.worker.program.tolerant import Tolerance, tolerant
from tclint.tracing.worker.program.unknown import UNKNOWN
from tclint.tracing.worker.project_files import import_roots, watch
from tclint.tracing.worker.project_imports import name_in_package

_NEEDLESS = ("self", "cls")
_WAITS = 3.0
"""The limit on wall-clock time over that on CPU time: a program may share its processor, or wait."""
_MOST_CALLS = 8
"""The most calls of the target that are recorded in search of one whose arguments are known."""
_MOST_USES = 16
"""The most calls of what it made: without its data, a program trains for hours on unknown values."""


def run_program(target: str, request: Mapping[str, Any], answer: str) -> NoReturn:
    """Run a script until it makes the target's model with known arguments, then on to the model's first call
    in training, and end the process.

    However far the program gets, what was seen is written to a file.

    Args:
        target: 'path/file.py:Net'.
        request: the fields of a `ProgramStart`, 'seconds' of CPU time.
        answer: the file.
    """
    path, _, name = target.rpartition(":")
    path, script = os.path.abspath(path), os.path.abspath(request["script"])
    os.chdir(request["folder"])
    sys.argv = [script, *request["words"]]
    sys.path[:0] = [os.path.dirname(script)]
    roots = [*import_roots(script), *import_roots(path)]
    sys.path.extend(root for root in roots if root not in sys.path)
    top = str(project_folder(Path(path).resolve().parent) or os.path.dirname(path))
    watcher = _Watcher(path, name, answer, watch(top))
    sys.meta_path.insert(0, _Finder([top, os.getcwd()], watcher))
    for number, timer, factor in (
        (signal.SIGPROF, signal.ITIMER_PROF, 1.0),
        (signal.SIGALRM, signal.ITIMER_REAL, _WAITS),
    ):
        signal.signal(number, lambda *_: watcher.end())
        signal.setitimer(timer, factor * request["seconds"], 1.0)
    sites = SiteFinder(roots=(top, os.getcwd()))
    with (
        without_gpu(),
        without_initialisation(),
        random_weights(sites),
        no_training(),
        nothing_written((top, os.getcwd()), []),
        watcher.modules(),
        lenient_command_line(),
        DeviceRewriter(lambda _: None),
        contextlib.suppress(BaseException),
    ):
        exec(_code(script, watcher), vars(_main(script)))
    watcher.end()


def _main(script: str) -> ModuleType:
    module = ModuleType("__main__")
    module.__file__ = script
    inside = name_in_package(script)
    if inside is not None:
        sys.path.append(inside[0])
        module.__package__ = inside[1].rpartition(".")[0]
    sys.modules["__main__"] = module
    return module


def _code(path: str, watcher: _Watcher) -> Any:
    with open(path, "rb") as file:
        is_home = os.path.realpath(path) == watcher.path
        return tolerant(file.read(), path, watcher.name if is_home else "")


class _Watcher:
    """Watches the program call the target, and writes down what it passes.

    Args:
        path: the target's file.
        name: the qualified name of its class or function.
        result: the file to write.
        files: gives the files that were read so far.
    """

    def __init__(self, path: str, name: str, result: str, files: Callable[[], Sequence[str]]) -> None:
        self.path, self.name = os.path.realpath(path), name
        self._result, self._files = result, files
        self._calls: list[ProgramCall] = []
        self._made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._models: list[nn.Module] = []
        """Those that the noted calls made."""
        self._is_known = False
        """Whether the last call's arguments are all known; then it alone counts."""
        self._uses = 0
        self.tolerance = Tolerance(self._builder)
        self.tolerance.install()
        self._open, self._exit, self._dumps = open, os._exit, json.dumps

    @contextlib.contextmanager
    def modules(self) -> Iterator[None]:
        """Watch modules being made and called."""

        def __new__(cls: type, *args: Any, **keywords: Any) -> Any:
            caller = sys._getframe(1)
            is_copy = caller.f_globals.get("__name__") in ("copyreg", "copy")
            module: Any = object.__new__(cls)
            self._made[module] = args, keywords
            given = cls.__init__, (None, *args), keywords, caller  # type: ignore[misc]
            if not is_copy and self._is_target(cls) and self._note_call(*given):
                self._models.append(module)
            return module

        call = nn.Module.__call__

        def __call__(module: nn.Module, *args: Any, **keywords: Any) -> Any:
            # A call under no_grad is a trial or an evaluation.
            if any(module is one for one in self._models):
                self._uses += 1
                is_training = self._is_known and torch.is_grad_enabled()
                if is_training and (inputs := inputs_of(module.forward, args, keywords)):
                    self._calls[-1] = replace(self._calls[-1], inputs=tuple(inputs))
                    self.end()
                if self._uses == _MOST_USES:
                    self.end()
            return call(module, *args, **keywords)

        with patched([(nn.Module, "__call__", __call__)]):
            nn.Module.__new__ = __new__
            yield

    def _is_target(self, cls: type) -> bool:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        return cls.__qualname__ == self.name and os.path.realpath(file or "") == self.path

    def _builder(self, function: Any) -> Any:
        @functools.wraps(function)
        def called(*args: Any, **keywords: Any) -> Any:
            is_noted = self._note_call(function, args, keywords, sys._getframe(1))
            made = function(*args, **keywords)
            parts = made if isinstance(made, (tuple, list)) else [made]
            if is_noted:
                self._models += [part for part in parts if isinstance(part, nn.Module)]
            return made

        return called

    def _note_call(
        self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any], caller: FrameType
    ) -> bool:
        """Note a call of the target; whether it is none after the first one whose arguments are all known."""
        if self._is_known:
            return False
        try:
            signature = inspect.signature(function)
            given = signature.bind(*args, **keywords).arguments
        except (TypeError, ValueError):
            return False
        for kind, parameter in ((one.kind, one.name) for one in signature.parameters.values()):
            if kind == inspect.Parameter.VAR_POSITIONAL and given.pop(parameter, None):
                return False  # `--arg` gives arguments by name
            if kind == inspect.Parameter.VAR_KEYWORD:
                given |= given.pop(parameter, {})
        given = {name: value for name, value in given.items() if name not in _NEEDLESS}
        self.tolerance.is_on = False
        texts = {
            name: Texts(self.path, self._made, self.tolerance.is_spoilt).of(value)
            for name, value in given.items()
        }
        self.tolerance.is_on = True
        told = {name: text for name, (text, _) in texts.items() if text is not None}
        sizes = {name: text for name, (_, text) in texts.items() if text is not None}
        untold = tuple(name for name in given if name not in told and name not in sizes)
        self._calls.append(ProgramCall(caller.f_code.co_filename, caller.f_lineno, told, sizes, untold))
        if len(self._calls) == _MOST_CALLS:
            self.end()
        self._write()  # the program may end in any way
        if not untold and not sizes:
            self._is_known, self._models = True, []
        return True

    def _write(self) -> None:
        seen = ProgramRun(tuple(self._calls), tuple(self._files()), tuple(self.tolerance.missing))
        with self._open(self._result, "w", encoding="utf-8") as file:
            file.write(self._dumps(to_json(seen)))

    def end(self) -> NoReturn:
        """Write what was seen, and end the process."""
        try:
            self._write()
        finally:
            self._exit(0)


class _Finder(MetaPathFinder):
    """Imports the project's files, rewritten."""

    def __init__(self, roots: Sequence[str], watcher: _Watcher) -> None:
        self._roots = tuple(os.path.join(os.path.realpath(root), "") for root in roots)
        self._watched = watcher

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module in the project's files; importlib calls this."""
        spec = PathFinder.find_spec(name, path, target)
        origin = os.path.realpath((spec.origin if spec is not None else None) or "")
        if spec is None or not origin.endswith(".py") or not origin.startswith(self._roots):
            return None
        if "site-packages" in origin:
            return None
        loader = _Loader(name, origin)
        loader.watcher = self._watched
        places = spec.submodule_search_locations
        return importlib.util.spec_from_file_location(
            name, origin, loader=loader, submodule_search_locations=places
        )


class _Loader(SourceFileLoader):
    watcher: _Watcher

    def get_code(self, fullname: str) -> Any:
        return _code(self.get_filename(fullname), self.watcher)


class _Ended(Exception):
    """The program wanted to end."""


def _refuse(*_args: object, **_keywords: object) -> NoReturn:
    raise _Ended


@contextlib.contextmanager
def lenient_command_line() -> Iterator[None]:
    """Keep the program from ending for a missing option or on its own, and from starting processes."""
    parse = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **keywords: Any) -> Any:
        for action in self._actions:
            if action.required and not isinstance(action, argparse._SubParsersAction):
                action.required = False
                action.default = UNKNOWN if action.default is None else action.default
                action.nargs = "?" if not action.option_strings and action.nargs is None else action.nargs
        return parse(self, *args, **keywords)

    def spawn(function: Any, args: tuple[Any, ...] = (), *_others: Any, **_options: Any) -> None:
        function(0, *args)

    ends = [(sys, "exit"), (builtins, "exit"), (builtins, "quit"), (os, "_exit")]
    replaced: list[tuple[Any, str, Any]] = [(owner, name, _refuse) for owner, name in ends]
    replaced.append((argparse.ArgumentParser, "parse_known_args", parse_known_args))
    with patched([*replaced, (torch.multiprocessing, "spawn", spawn)]):
        yield
