"""Which line of whose code made a layer or called an operator: found by walking interpreter frames."""

from __future__ import annotations

import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, TypeVar

from tclint.graph.ops import Site

_SKIPPED, _LIBRARY, _USER, _BARRIER, _MODULE_CALL = 0, 1, 2, 3, 4

# Frames walked before giving up: deeper than any model nests, shallow enough to stay cheap.
_MAX_FRAMES = 200

_OWN_FOLDER = str(Path(__file__).parents[2]) + os.sep
_PATHS = sysconfig.get_paths()
_LIBRARY_FOLDERS = tuple({_PATHS[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")})
_LIBRARY_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def file_of(code_file: str) -> str:
    """The file of a code object as reports name it: 'In[3]' for a cell of an IPython session."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(code_file)
    return named[1] if named else code_file


_Function = TypeVar("_Function", bound=Callable[..., Any])
_LINE = re.compile(r'File "([^"]*)", line (\d+)(?:, in (\S+))?')


_ENTRANCES: set[CodeType] = set()


def entrance(function: _Function) -> _Function:
    """Mark a function of the tracer through which it enters the user's code: what called it has nothing to
    do with the model."""
    assert isinstance(function, FunctionType)
    _ENTRANCES.add(function.__code__)
    return function


class SitePair(NamedTuple):
    """The user's line (else the library's), and the library's line where the user only called a library."""

    site: Site | None
    library_site: Site | None


NOWHERE = SitePair(None, None)


class Caller(NamedTuple):
    """What a walk finds from the call of a module outwards."""

    pair: SitePair
    is_user: bool
    """The pair's site is the user's."""


class SiteFinder:
    """Tells user code from library code, and finds the innermost line of each in a call stack.

    User code is what lies under one of `roots` (or is one of `files`) and is neither installed
    (site-packages, standard library) nor torch nor this tool. With neither roots nor files, everything
    that is not installed is user code.
    """

    def __init__(self, roots: Iterable[str] = (), files: Iterable[str] = ()) -> None:
        self._roots = tuple(os.path.join(os.path.realpath(root), "") for root in roots)
        self._files = frozenset(files)
        self._torch_folder = ""
        torch = sys.modules.get("torch")
        if torch is not None and torch.__file__:
            self._torch_folder = os.path.dirname(torch.__file__) + os.sep
        # By identity: a code object's hash is computed from all its instructions each time.
        self._kinds: dict[int, int] = {}
        self._known: list[CodeType] = []
        self._sites: dict[tuple[int, int], Site] = {}
        # Modules by the hundred are made, and operators called, at the same two lines.
        self._pairs: dict[tuple[int, int], SitePair] = {}

    def is_user_file(self, path: str) -> bool:
        """Whether the file of that name counts as the user's own."""
        return self._kind_of_file(path) == _USER

    def ids(self) -> frozenset[int]:
        """Identities of the sites that it found."""
        return frozenset(map(id, self._sites.values()))

    @staticmethod
    def is_own_file(path: str) -> bool:
        """Whether the file is part of this tool."""
        return os.path.abspath(path).startswith(_OWN_FOLDER)

    def mark_module_call(self, code: CodeType) -> None:
        """Name the function that calls modules: above it, all operators of the module see the same frames."""
        self._note(code, _MODULE_CALL)

    def _note(self, code: CodeType, kind: int) -> int:
        if id(code) not in self._kinds:
            self._known.append(code)
        self._kinds[id(code)] = kind
        return kind

    def find(
        self, frame: FrameType | None, callers: list[Caller | None] | None = None, depth: int = 0
    ) -> SitePair:
        """The innermost user line at or above `frame`, and the library line below it, if any.

        Args:
            callers: for each module that runs, outermost first, what was found above its call; filled in.
            depth: how many of them, not counting the first, are above `frame`.
        """
        return self._walk(frame, callers, depth).pair

    def of_trace(self, trace: str) -> SitePair:
        """The innermost line of the user's in a printed stack trace."""
        site = None
        for path, line, function in _LINE.findall(trace):
            if self.is_user_file(path):
                site = Site(path, int(line), function)
        return NOWHERE if site is None else SitePair(site, None)

    def _walk(self, frame: FrameType | None, callers: list[Caller | None] | None, depth: int) -> Caller:
        inner: Site | None = None
        kinds = self._kinds
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = self._note(code, self._kind_of(code))
            if kind == _BARRIER:
                break
            if kind == _MODULE_CALL and callers is not None and depth > 0:
                outer = callers[depth]
                if outer is None:
                    outer = callers[depth] = self._walk(frame.f_back, callers, depth - 1)
                return self._with_inner(outer, inner)
            if kind == _USER:
                site = self._site(code, frame.f_lineno)
                return Caller(self._pair(site, inner), True)
            if kind == _LIBRARY and inner is None:
                inner = self._site(code, frame.f_lineno)
            frame = frame.f_back
        return Caller(self._pair(inner, None), False)

    def _with_inner(self, outer: Caller, inner: Site | None) -> Caller:
        """What is found where a library's line, if any, lies between an operator and what was found above."""
        if inner is None:
            return outer
        pair = self._pair(outer.pair.site, inner) if outer.is_user else self._pair(inner, None)
        return Caller(pair, outer.is_user)

    def _pair(self, site: Site | None, library_site: Site | None) -> SitePair:
        if site is None:
            return NOWHERE
        key = id(site), id(library_site)
        pair = self._pairs.get(key)
        if pair is None:
            pair = self._pairs[key] = SitePair(site, library_site)
        return pair

    def find_constructor(self, frame: FrameType | None, instance: object) -> SitePair:
        """Where `instance` is being constructed: climbs over its own __init__ chain to the caller."""
        outermost = frame
        gap = 0
        while frame is not None and gap < 4:
            if _runs_on(frame, instance):
                outermost = frame.f_back
                gap = 0
            else:
                gap += 1
            frame = frame.f_back
        return self._of_caller(outermost)

    def _of_caller(self, frame: FrameType | None) -> SitePair:
        """As `find`; a function of the user's that only hands on what it is given is not the place, but what
        called it: `def linear(*args): return nn.Linear(*args)`, a decorator's wrapper."""
        found = self._walk(frame, None, 0)
        place = found
        while (frame := self._user_frame(frame)) is not None and _hands_on(frame):
            frame = frame.f_back
            outer = self._walk(frame, None, 0)
            if not outer.is_user:
                break
            place = outer
        return found.pair if place is found else self._pair(place.pair.site, found.pair.site)

    def _user_frame(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of the user's, of those that a walk has looked at."""
        while frame is not None and (kind := self._kinds.get(id(frame.f_code))) != _USER:
            if kind in (_BARRIER, None):
                return None
            frame = frame.f_back
        return frame

    def _site(self, code: CodeType, line: int) -> Site:
        key = (id(code), line)
        site = self._sites.get(key)
        if site is None:
            path = file_of(code.co_filename)
            if path == code.co_filename and not path.startswith("<"):
                path = os.path.abspath(path)
            site = self._sites[key] = Site(path, line, code.co_name)
        return site

    def _kind_of(self, code: CodeType) -> int:
        if code in _ENTRANCES:
            return _BARRIER
        return self._kind_of_file(code.co_filename)

    def _kind_of_file(self, path: str) -> int:
        if path in self._files or file_of(path) != path:
            return _USER
        if path.startswith("<"):
            return _SKIPPED
        absolute = os.path.abspath(path)
        if absolute.startswith(_OWN_FOLDER) or (
            self._torch_folder and absolute.startswith(self._torch_folder)
        ):
            return _SKIPPED
        if absolute.startswith(_LIBRARY_FOLDERS) or any(part in absolute for part in _LIBRARY_PARTS):
            return _LIBRARY
        if not self._roots and not self._files:
            return _USER
        return _USER if os.path.realpath(absolute).startswith(self._roots) else _LIBRARY


def _hands_on(frame: FrameType) -> bool:
    """Whether the frame is of a function that was given starred arguments, and is no method of a module."""
    code = frame.f_code
    starred = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if not starred or code.co_name == "__init__":
        return False
    first = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[first : first + starred.bit_count()]
    return any(frame.f_locals.get(name) for name in names)


def _runs_on(frame: FrameType, instance: object) -> bool:
    """Whether the frame is part of constructing `instance`: its __init__, a wrapper of it, a metaclass."""
    code = frame.f_code
    if code.co_argcount:
        first = frame.f_locals.get(code.co_varnames[0])
        if first is instance:
            return True
        return (
            code.co_name in ("__call__", "__new__")
            and isinstance(first, type)
            and isinstance(instance, first)
        )
    if code.co_flags & inspect.CO_VARARGS:
        name = code.co_varnames[code.co_kwonlyargcount]
        arguments = frame.f_locals.get(name)
        return isinstance(arguments, tuple) and bool(arguments) and arguments[0] is instance
    return False
