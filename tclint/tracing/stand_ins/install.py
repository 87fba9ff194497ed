"""Puts stand-ins in place of a library that the user's file needs and that is not installed.

Code that can do without the library has its own way, which is taken: only an import that would end the build
is answered, and only in the process that ends with its targets.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tclint.graph.ops import Assumption


@dataclass(frozen=True, slots=True)
class _Library:
    answers: str
    """The module here that has its functions, by their names there."""
    replaced_with: str


_ATTENTION = _Library("attention", "its functions were replaced with scaled_dot_product_attention")
_LIBRARIES: Mapping[str, _Library] = {
    "flash_attn": _ATTENTION,
    "flash_attn_interface": _ATTENTION,
    "xformers": _ATTENTION,
    "apex": _Library("norms", "its fused norms were replaced with torch's layer_norm and rms_norm"),
    "mamba_ssm": _Library(
        "state_space", "its selective scan was replaced with an operator of the same bytes and FLOPs"
    ),
    "selective_scan_cuda": _Library("state_space", "its scan was replaced with one of the same work"),
    "causal_conv1d": _Library("state_space", "its functions were replaced with conv1d"),
    "triton": _Library("triton", "its kernels do nothing here, and have no price"),
}
_installed: dict[str, Assumption] = {}


def stand_in_for(module: str | None) -> bool:
    """Answer imports of a missing library from now on; False where there is no stand-in, or it is there."""
    root = (module or "").partition(".")[0]
    if root not in _LIBRARIES or root in _installed:
        return False
    if not _installed:
        sys.meta_path.append(_Finder)
    _installed[root] = Assumption(f"{root} is not installed: {_LIBRARIES[root].replaced_with}")
    return True


def has_stand_in(package: str) -> bool:
    """Whether imports of a library can be answered without it."""
    return package in _LIBRARIES


def stand_ins() -> tuple[Assumption, ...]:
    """What was replaced so far, for the report."""
    return tuple(_installed.values())


class _Finder:
    """Finds every submodule of the libraries that stand-ins were asked for, after what is installed."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in _installed:
            return None
        return importlib.machinery.ModuleSpec(name, _Loader, is_package=True)  # type: ignore[arg-type]


class _Loader:
    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """There is nothing to run."""


class _StandIn(ModuleType):
    """Answers names that are known; another one can be imported, and fails when it is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        library = _LIBRARIES[self.__name__.partition(".")[0]]
        answers = importlib.import_module(f"tclint.tracing.stand_ins.{library.answers}")
        found = getattr(answers, name, None)
        if found is None or getattr(found, "__module__", "") != answers.__name__:
            found = importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} is not installed here, and tclint has no stand-in for it")
