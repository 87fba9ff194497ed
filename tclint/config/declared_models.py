"""Reads `models` of `[tool.tclint]`: what `--models` lints, each model under its own settings."""

from __future__ import annotations

from tclint.config.settings import DeclaredModel, settings_in
from tclint.core.errors import closest
from tclint.core.target import is_model_target

ENTRY_SETTINGS = {item.key: item for item in settings_in("models")}
"""What an entry may set for itself, by key."""


def parse_models(value: object, root: str) -> tuple[DeclaredModel, ...]:
    """The entries of `models`; files are relative to `root`.

    Raises:
        ValueError: one is not a model, or has a key or value that it cannot have.
    """
    if not isinstance(value, list):
        raise ValueError('expects an array such as ["model.py:build_model"]')
    return tuple(_parse_model(item, root) for item in value)


def _parse_model(item: object, root: str) -> DeclaredModel:
    table = {"target": item} if isinstance(item, str) else item
    if not isinstance(table, dict) or not isinstance(table.get("target"), str):
        raise ValueError("expects texts such as 'model.py:build_model', or tables with a 'target'")
    target: str = table["target"]
    if not is_model_target(target):
        raise ValueError(f"names {target!r}, where it expects a model such as 'model.py:build_model'")
    values = []
    for key, given in table.items():
        if key == "target":
            continue
        setting = ENTRY_SETTINGS.get(key)
        if setting is None:
            keys = tuple(ENTRY_SETTINGS)
            hint = closest(key.replace("_", "-"), keys) or f" Its keys are {', '.join(keys)}."
            raise ValueError(f"has the entry {target!r}, which cannot set {key!r}.{hint}")
        try:
            values.append((setting.field, setting.kind.parse(given)))
        except ValueError as error:
            raise ValueError(f"has the entry {target!r}, whose {key!r} {error}") from None
    return DeclaredModel(target, tuple(values), root)
