"""Settings as keywords: for the functions of Python, callbacks, the magic and lines with targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tclint.config.kinds import sentence
from tclint.config.pyproject import find_config, load_config, with_flags
from tclint.config.settings import SETTINGS_BY_KEY, Settings
from tclint.core.errors import UsageError, closest


def session_settings(options: Mapping[str, Any], stated: Mapping[str, Any] | None = None) -> Settings:
    """Options over what the nearest pyproject.toml says.

    Args:
        options: by the keys of `[tool.tclint]`, as {"gpu": "h100", "batch": 32}; with underscores, too.
        stated: by field of Settings, what the run itself says; it holds where neither names another.

    Raises:
        UsageError: there is no such option, or its value is wrong.
    """
    file = find_config(Path.cwd())
    settings = load_config(file) if file is not None else Settings()
    given: dict[str, Any] = {}
    for key, value in options.items():
        setting = SETTINGS_BY_KEY.get(key.replace("_", "-"))
        if setting is None:
            raise UsageError(f"There is no option {key!r}.{closest(key, list(SETTINGS_BY_KEY))}")
        try:
            listed = list(value) if isinstance(value, tuple) else value
            given[setting.field] = setting.kind.parse(listed)
        except ValueError as error:
            raise UsageError(sentence(f"The option {key!r} {error}", value)) from None
    settings = with_flags(settings, given)
    rest = {name: value for name, value in (stated or {}).items() if name not in settings.explicit}
    return replace(settings, **rest)


def options_in(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Names, and options by their keys, among words as 'model', '--gpu=h100', '--batch', '8', '--no-cache'.

    Raises:
        ValueError: an option has no value.
    """
    names: list[str] = []
    options: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            names.append(word)
            continue
        key, equals, text = word[2:].partition("=")
        setting = SETTINGS_BY_KEY.get(key) or SETTINGS_BY_KEY.get(key.removeprefix("no-"))
        if setting is not None and isinstance(setting.default, bool):
            options[setting.key] = key == setting.key
            continue
        value = text if equals else next(rest, None)
        if value is None:
            raise ValueError(f"--{key} needs a value")
        is_list = setting is not None and isinstance(setting.default, tuple)
        options[key] = [*options.get(key, ()), value] if is_list else value
    return names, options
