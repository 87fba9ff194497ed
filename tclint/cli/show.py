"""What `check --show-settings` and `--show-files` print instead of linting."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tclint.config.pyproject import FILE_NAME
from tclint.config.settings import SETTINGS, Settings
from tclint.core.target import is_model_target
from tclint.engine.declared_models import file_of, grouped
from tclint.source.syntax.discovery import discover, is_below


def settings_text(
    targets: Sequence[str], settings: Settings, config_file: Path | None, flags: Collection[str]
) -> str:
    """The settings that hold for each group of targets, as TOML, with where they come from.

    Args:
        config_file: of the run.
        flags: fields that the command line sets.
    """
    parts = []
    for own, group in grouped(targets, settings).items():
        path = os.path.abspath(file_of(group[0]))
        nested = (Path(folder, FILE_NAME) for folder, _ in settings.nested if is_below(path, [folder]))
        is_one_file = len(group) == 1 and os.path.isfile(path)
        shown = own.for_path(path) if is_one_file else own
        parts.append("\n".join(_lines(group, shown, next(nested, config_file), flags)) + "\n")
    return "\n".join(parts)


def _lines(
    targets: Sequence[str], settings: Settings, file: Path | None, flags: Collection[str]
) -> Iterator[str]:
    yield f"# {', '.join(targets)}: {'no configuration file' if file is None else file}"
    yield "[tool.tclint]"
    for setting in SETTINGS:
        value = setting.json_value(settings)
        if setting.field in flags:
            origin = "  # command line"
        else:
            origin = "  # default" if getattr(settings, setting.field) == setting.default else ""
        if value is None:
            yield f"# {setting.key} is not set"
        else:
            yield f"{setting.key} = {json.dumps(value)}{origin}"


def files_text(targets: Sequence[str], settings: Settings) -> str:
    """The models and the files that a run would look at, one a line."""
    from tclint.engine.check import relative_path

    models = [target for target in targets if is_model_target(target)]
    files = map(relative_path, files_of([target for target in targets if target not in models], settings))
    return "".join(f"{line}\n" for line in dict.fromkeys([*models, *files]))


def files_of(paths: Sequence[str], settings: Settings) -> list[str]:
    """The files that a run would read; of those in folders, all that their settings do not exclude.

    Raises:
        TargetError: a path does not exist, or is neither a folder nor a Python file.
        UsageError: git does not know the revision.
    """
    groups = grouped(paths, settings).items() if paths else ()
    return [file for own, group in groups for file in discover(group, own)[0]]
