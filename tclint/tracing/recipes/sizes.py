"""The sizes of well-known language models, from sizes.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tclint.core.toml import packaged_toml


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model's configuration, as far as it decides sizes."""

    model_type: str
    """transformers' name of its architecture."""
    config: Mapping[str, Any]
    dtype: str
    """That of its published weights."""
    source: str


def known_model(name: str) -> KnownModel | None:
    """The model of that id, or that torchtune or torchtitan calls so; None where the table has none."""
    table = packaged_toml("tclint.tracing.recipes", "sizes.toml")
    plain = _without(name.lower(), table["suffixes"])
    for row in table["model"]:
        patterns = [pattern.lower() for pattern in row["names"]]
        if any(fnmatchcase(one, pattern) for pattern in patterns for one in (name.lower(), plain)):
            return KnownModel(row["type"], row["config"], row["dtype"], row["source"])
    return None


def _without(name: str, suffixes: list[str]) -> str:
    while (found := next((end for end in suffixes if name.endswith(end)), None)) is not None:
        name = name.removesuffix(found)
    return name
