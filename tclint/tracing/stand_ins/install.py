"""Puts stand-ins in place of a library that the user's file needs and that is not installed.

Code that can do without the library has its own way, which is taken unless the project asks for the library,
so that the GPU machine has it. What no stand-in is known for is missing all the same, until an import of it
would end the build. All of it holds in the process that ends with its targets.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tclint.graph.ops import Assumption


@dataclass(frozen=True, slots=True)
class _Library:
    answers: str
    """The module here that has its functions, by their names there."""
    replaced_with: str
    version: str = ""
    """What the library's functions are of; empty: code that can do without it is left to do so."""


_AS_ATTENTION = "its functions were replaced with scaled_dot_product_attention"
_ATTENTION = _Library("attention", _AS_ATTENTION, "2.8.3")
_LIBRARIES: Mapping[str, _Library] = {
    "flash_attn": _ATTENTION,
    "flash_attn_interface": _ATTENTION,
    "xformers": _Library("attention", _AS_ATTENTION, "0.0.32"),
    "apex": _Library("norms", "its fused norms were replaced with torch's layer_norm and rms_norm", "0.1"),
    "mamba_ssm": _Library(
        "state_space", "its selective scan was replaced with an operator of the same bytes and FLOPs", "2.2.5"
    ),
    "selective_scan_cuda": _Library("state_space", "its scan was replaced with one of the same work"),
    "causal_conv1d": _Library("state_space", "its functions were replaced with conv1d", "1.5.2"),
    "triton": _Library("triton", "its kernels do nothing here, and have no price"),
}
_installed: dict[str, Assumption] = {}
_offered: set[str] = set()
"""Those of them that code can do without: names that no stand-in is known for are missing."""
_used: set[str] = set()
_idle: dict[str, Assumption] = {}
"""Installed libraries of which a part was replaced, as it needs a GPU."""


def stand_in_for(module: str | None) -> bool:
    """Answer imports of a missing library from now on; False where there is no stand-in, or it is there."""
    root = (module or "").partition(".")[0]
    if root not in _LIBRARIES or (root in _installed and root not in _offered):
        return False
    _offered.discard(root)
    _install(root, "")
    return True


def offer(asked_for: Iterable[str]) -> None:
    """Answer imports of what a project asks for, where code can do without it, too."""
    for root in asked_for:
        if _LIBRARIES[root].version and root not in _installed and find_spec(root) is None:
            _offered.add(root)
            _install(root, ", though the project asks for it")


def can_be_offered() -> Sequence[str]:
    """Names of libraries that `offer` knows."""
    return [name for name, library in _LIBRARIES.items() if library.version]


def _install(root: str, why: str) -> None:
    if not _installed:
        sys.meta_path.append(_Finder)
    _installed[root] = Assumption(f"{root} is not installed{why}: {_LIBRARIES[root].replaced_with}")


def has_stand_in(package: str) -> bool:
    """Whether imports of a library can be answered without it."""
    return package in _LIBRARIES


def stand_ins() -> tuple[Assumption, ...]:
    """What was replaced so far, for the report."""
    return (*(told for root, told in _installed.items() if root in _used), *_idle.values())


def replaced_without_gpu(root: str) -> None:
    """Note that an installed library's kernels were replaced, as they need a GPU."""
    _idle[root] = Assumption(f"{root} needs a GPU, and there is none: {_LIBRARIES[root].replaced_with}")


def replaced() -> list[str]:
    """The libraries whose stand-ins were imported."""
    return [*_used]


class _Finder:
    """Finds every submodule of the libraries that stand-ins were asked for, after what is installed."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        root = name.partition(".")[0]
        if root not in _installed or (root in _offered and _asks_for_a_name()):
            return None
        return importlib.machinery.ModuleSpec(name, _Loader, is_package=True)  # type: ignore[arg-type]


def _asks_for_a_name() -> bool:
    """Whether `from module import name` looks for a submodule, because the module has no such name."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
        if frame.f_code.co_name == "_handle_fromlist":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class _Loader:
    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """There is nothing to run."""
        _used.add(module.__name__.partition(".")[0])


class _StandIn(ModuleType):
    """Answers names that are known; another one can be imported, and fails when it is called."""

    def __getattr__(self, name: str) -> Any:
        root = self.__name__.partition(".")[0]
        library = _LIBRARIES[root]
        if name == "__version__":
            return library.version
        if name.startswith("__"):
            raise AttributeError(name)
        answers = importlib.import_module(f"tclint.tracing.stand_ins.{library.answers}")
        found = getattr(answers, name, None)
        if found is None or getattr(found, "__module__", "") != answers.__name__:
            if root in _offered:
                raise AttributeError(name)
            found = importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} is not installed here, and tclint has no stand-in for it")
