"""Stand-ins for packages of which a model uses nothing: they are imported, and any use of them fails.

A file that draws curves imports a plotting library beside its model. Where that is not installed, its names
can be imported, passed on, changed and called while files are imported; whatever needs more of them raises
`NotInstalled`, so that no trace rests on them.
"""

from __future__ import annotations

import contextlib
import operator
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from tclint.core.text import listed
from tclint.graph.ops import Assumption

_absent: dict[str, ModuleNotFoundError] = {}
"""Package -> the error that its first import raised."""
_compiled: dict[str, None] = {}
"""The extensions that the code compiles for itself."""
_COMPILER = "torch.utils.cpp_extension"


class _State:
    is_importing = False
    """While files are imported, what absent packages hold may be called."""
    refused = ""
    """The package of which something was used."""


class NotInstalled(RuntimeError):
    """Something of an absent package was used."""

    def __init__(self, name: str) -> None:
        _State.refused = name.partition(".")[0]
        super().__init__(f"{_State.refused} is not installed here")


class _Base:
    """A class of an absent package: others can derive from it, and none can be made."""

    package = ""

    def __init_subclass__(cls, **_options: Any) -> None:
        super().__init_subclass__()

    def __new__(cls, *_args: Any, **_options: Any) -> Any:
        raise NotInstalled(cls.package)


class Absent:
    """An object of an absent package."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = part = _part(self._name, name)  # code may compare names with `is`
        return part

    def __call__(self, *_args: Any, **_options: Any) -> Absent:
        return _part(self._name, "()")

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (type("Base", (_Base,), {"package": self._name}),)

    def _annotation(self, _other: object) -> Absent:
        _refuse_after_import(self._name)
        return self

    def __hash__(self) -> int:
        _refuse_after_import(self._name)
        return id(self)

    def __str__(self) -> str:
        _refuse_after_import(self._name)
        return self._name

    def __delattr__(self, name: str) -> None:
        _refuse_after_import(self._name)
        self.__dict__.pop(name, None)

    def _change(self, *_args: Any) -> None:
        _refuse_after_import(self._name)

    def _refuse(self, *_args: Any) -> NoReturn:
        raise NotInstalled(self._name)

    __getitem__ = __or__ = __ror__ = _annotation
    __setitem__ = __delitem__ = _change
    __bool__ = __iter__ = __len__ = __int__ = __float__ = __enter__ = __exit__ = _refuse
    __instancecheck__ = __subclasscheck__ = _refuse

    def __eq__(self, _other: object) -> NoReturn:
        self._refuse()


for _operation in (name for name, value in vars(operator).items() if name[:2] == "__" and callable(value)):
    for _special in (_operation, f"__r{_operation[2:]}"):
        if _special not in vars(Absent):
            setattr(Absent, _special, Absent._refuse)


def _part(name: str, part: str) -> Absent:
    _refuse_after_import(name)
    return Absent(f"{name}.{part}")


def _refuse_after_import(name: str) -> None:
    """Raise where a model is built or runs: no name of an absent package may decide what it does."""
    if not _State.is_importing:
        raise NotInstalled(name)


_NEWEST = "9999"
"""The version of an absent package: code that asks for it wants it to be new enough."""


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return _NEWEST
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = part = _part(self.__name__, name)
        return part


class _Finder:
    """Finds every module of the absent packages, after what is installed."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in _absent:
            return None
        return ModuleSpec(name, _Finder, is_package=True)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """There is nothing to run."""


def stand_in_for_absent(error: ImportError) -> bool:
    """Answer imports of the package that an import lacked from now on; False where that is no way out."""
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package or package in _absent:
        return False
    if package in sys.modules or find_spec(package) is not None:
        return False
    if not _absent:
        sys.meta_path.append(_Finder)
    _absent[package] = error
    return True


def stand_in_for_compiled(error: Exception) -> bool:
    """Answer what compiles extensions of torch from now on; False where that is not what failed."""
    compiler = sys.modules.get(_COMPILER)
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    if compiler is None or all(frame.f_globals is not vars(compiler) for frame in frames):
        return False
    for name in ("load", "load_inline"):
        setattr(compiler, name, _compile)
    return True


def _compile(name: str, *_args: Any, **_options: Any) -> Absent:
    _compiled[name] = None
    return Absent(name)


def is_absent(package: str) -> bool:
    """Whether imports of a package are answered so."""
    return package in _absent


def names_of_absent() -> list[str]:
    """The packages whose imports were answered so."""
    return [*_absent]


def error_of(value: object) -> NotInstalled | None:
    """The error of using something of an absent package; None for anything else."""
    return NotInstalled(value._name) if isinstance(value, Absent) else None


def is_refused() -> bool:
    """Whether something of an absent package was used, which failed."""
    return bool(_State.refused)


def first_absent() -> ModuleNotFoundError | None:
    """The error of the import that was answered so: of the package that was used, else of the first."""
    return _absent.get(_State.refused) or next(iter(_absent.values()), None)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While files are imported, what absent packages hold may be called."""
    before, _State.is_importing = _State.is_importing, True
    try:
        yield
    finally:
        _State.is_importing = before


def absent_packages() -> tuple[Assumption, ...]:
    """What was imported or compiled so, for the report."""
    told = []
    if _absent:
        verb, them = ("is", "it") if len(_absent) == 1 else ("are", "them")
        told.append(f"{listed(list(_absent), 12)} {verb} not installed here; the model runs without {them}")
    if _compiled:
        verb = "is" if len(_compiled) == 1 else "are"
        what = f"{listed(list(_compiled), 12)} {verb} compiled on the GPU machine and not here"
        told.append(f"{what}; the code's way for the CPU is priced where it calls them")
    return tuple(map(Assumption, told))
