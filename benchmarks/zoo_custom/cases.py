"""The hand-written models as cases of the zoo."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from zoo_case import Case

FAMILIES = (
    "recurrent",
    "generative",
    "vision",
    "speech",
    "tabular_graph",
    "attention",
    "machinery",
    "control",
    "everyday_vision",
    "everyday_text",
    "everyday_data",
    "wrapping",
)


def versions() -> str:
    import torch

    return f"torch {torch.__version__}"


def cases() -> Iterator[Case]:
    """Every `build_*` function of the family modules, in the order they are written."""
    for family in FAMILIES:
        module = importlib.import_module(f"zoo_custom.{family}")
        for name, function in list(vars(module).items()):
            if name.startswith("build_"):
                yield Case(name.removeprefix("build_"), family, function)
