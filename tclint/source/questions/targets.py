"""The models that a program trains, as targets that tclint can trace."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tclint.source.questions.defaults import Defaults
from tclint.source.questions.optimizers import Optimizers
from tclint.source.run.values import Thing, modules_in

_LOADED: Mapping[str, str] = {"transformers.": "hf", "timm.create_model": "timm"}
"""Beginnings of the names of libraries' calls that load a model by name -> the scheme of such targets."""

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""A model's name, with its owner's where it has one; a longer path is a folder that training writes."""


def trained_models(optimizers: Optimizers) -> tuple[str, ...]:
    """Targets such as '/project/net.py:Net' and 'hf:gpt2' of the models that the program's optimizers update.
    The one with the most parts comes first; a part of another one is left out, as is whatever has no name
    that tclint could trace it by."""
    modules = {
        module
        for _, optimizer in optimizers.all
        for module in optimizers.updated_by(optimizer)
        if module.kind == "module"
    }
    inner = {part for module in modules for part in modules_in(module) if part is not module}
    whole = sorted(modules - inner, key=lambda module: -sum(1 for _ in modules_in(module)))
    return tuple(dict.fromkeys(target for module in whole if (target := _target(module))))


def _target(module: Thing) -> str:
    if module.cls is not None:
        name = module.cls.function.qualified_name
        is_reachable = not module.cls.file.is_library and "." not in name
        return f"{module.cls.file.path}:{name}" if is_reachable else ""
    scheme = next((scheme for start, scheme in _LOADED.items() if module.name.startswith(start)), "")
    loaded = Defaults().constant(module.made.first) if scheme and module.made is not None else None
    return f"{scheme}:{loaded}" if isinstance(loaded, str) and _NAME.fullmatch(loaded) else ""
