"""Sizes of pictures and lengths of sound that families of models are trained on, told by the class."""

from __future__ import annotations

import functools
import re
from typing import Any

from torch import nn

from tclint.core.toml import packaged_toml
from tclint.tracing.inputs.forward_arguments import parameters_of
from tclint.tracing.inputs.guesses.named_inputs import are_times
from tclint.tracing.inputs.guesses.project_sizes import ProjectSizes, StatedSize


def customary_sizes(model: nn.Module) -> ProjectSizes | None:
    """None where the name tells no family; models of diffusion are of another kind than their U-Nets."""
    if any(map(are_times, parameters_of(model))):
        return None
    name = type(model).__name__.lower()
    for family in _families():
        if re.search(family["classes"], name):
            why = f"is customary for {family['name']}"
            if "samples" in family:
                return ProjectSizes(samples=StatedSize((family["samples"],), why))
            return ProjectSizes(StatedSize((family["side"], family["side"]), why))
    return None


@functools.cache
def _families() -> list[dict[str, Any]]:
    families: list[dict[str, Any]] = packaged_toml(__package__, "customary_sizes.toml")["family"]
    return families
