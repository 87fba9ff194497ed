"""Stand-ins for modules that torch's meta kernels and optimizers import on first use and then hardly use.

Python meta kernels import sympy, torch.fx.experimental.symbolic_shapes and torch._dynamo to ask questions
about symbolic sizes: of `tclint fixtures/gpt2.py:build_model` that is 1.5 s of 4.9 s CPU time, and 70 MiB of
its peak memory (torch 2.13). In a trace all sizes are plain integers, so the answers are trivial. A stand-in
answers those; whatever else is asked of it loads the real module. Only the worker process, which ends with
its targets, uses them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class LightModule(ModuleType):
    """Answers the names in `answers`; any other attribute loads the real module and asks that."""

    def __init__(self, name: str, answers: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__["_light_answers"] = answers
        self.__dict__["_light_real"] = None

    def __getattr__(self, name: str) -> Any:
        real = self.__dict__["_light_real"]
        if real is None:
            answers = self.__dict__["_light_answers"]
            if name in answers:
                return answers[name]
            # `from module import name` looks whether the module is a package; that alone loads nothing.
            if name.startswith("__") and not (name == "__path__" and self.__name__ in _PACKAGES):
                raise AttributeError(name)
            real = self._load()
        return getattr(real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
            return
        # `torch._dynamo.config.suppress_errors = True` and the like mean the real module.
        setattr(self.__dict__["_light_real"] or self._load(), name, value)

    def _load(self) -> ModuleType:
        if self.__name__ != "sympy" and isinstance(sympy := sys.modules.get("sympy"), LightModule):
            sympy._load()  # the real modules derive classes from its classes
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        real = importlib.import_module(self.__name__)
        self.__dict__["_light_real"] = real
        return real


class _NeverAnInstance:
    """Stands for a class of which no object can exist while its module is not loaded."""


def _truth(value: Any, *_args: Any, **_kwargs: Any) -> bool:
    return bool(value)


def _itself(value: Any, *_args: Any, **_kwargs: Any) -> Any:
    return value


def _no(*_args: Any, **_kwargs: Any) -> bool:
    return False


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    pass


def _not_disabled(function: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    return function if function is not None else (lambda wrapped: wrapped)


_STAND_INS: dict[str, dict[str, Any]] = {
    # Only what kernels ask `isinstance` of: user code that makes symbols must get real ones.
    "sympy": {"Basic": _NeverAnInstance},
    # Steps of optimizers break graphs.
    "torch._dynamo": {"disable": _not_disabled, "graph_break": _nothing, "is_compiling": _no},
    "torch.fx.experimental.symbolic_shapes": {
        "_advise_is_bounded": _no,
        "_advise_is_size": _no,
        "_constrain_range_for_size": _no,
        "constrain_range": _no,
        "definitely_true": _truth,
        "expect_true": _truth,
        "free_unbacked_symbols": lambda *_args: set(),
        "guard_bool": _truth,
        "guard_int": _itself,
        "guard_or_false": _truth,
        "guard_or_true": _truth,
        "guard_size_oblivious": _truth,
        "guarding_hint_or_throw": _itself,
        "has_free_symbols": _no,
        "has_free_unbacked_symbols": _no,
        "has_guarding_hint": lambda *_args: True,
        "is_nested_int": _no,
        "statically_known_true": _truth,
        "sym_and": lambda *values: all(values),
        "sym_eq": lambda left, right: bool(left == right),
        "sym_or": lambda *values: any(values),
    },
}


_PACKAGES = frozenset({"sympy", "torch._dynamo"})


def install() -> None:
    """Put the stand-ins in place of modules that are not loaded yet."""
    for name, answers in _STAND_INS.items():
        if name not in sys.modules:
            sys.modules[name] = LightModule(name, answers)
