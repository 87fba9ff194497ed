"""Lints nested projects, and the models that `[tool.tclint] models` declares."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tclint.config.pyproject import FILE_NAME, find_config, load_met_config, with_flags
from tclint.config.settings import DeclaredModel, Settings
from tclint.core.errors import UsageError
from tclint.core.target import is_model_target
from tclint.engine.rules.registry import without_unknown_rules
from tclint.source.syntax.discovery import is_below, named_files

if TYPE_CHECKING:
    from tclint.engine.caches import TraceCache
    from tclint.engine.check import Progress
    from tclint.engine.report import Report


def with_nested(
    settings: Settings, config: Path | None, targets: Sequence[str], flags: Mapping[str, Any]
) -> Settings:
    """Settings that know the configuration files of the targets' own folders.

    Args:
        config: the file that `settings` are from; None: there is none.
        targets: as typed.
        flags: parsed values by field of Settings, which win over each of the files.

    Raises:
        UsageError: a configuration file cannot be read or is invalid.
    """
    own = None if config is None else os.path.abspath(config)
    found: dict[str, Path] = {}
    for target in targets:
        path = os.path.abspath(file_of(target))
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        nearest = find_config(Path(folder)) if os.path.isdir(folder) else None
        files = [] if nearest is None else [str(nearest)]
        if os.path.isdir(path):
            inner = (file for file in named_files(path, FILE_NAME) if os.path.basename(file) == FILE_NAME)
            files += [file for file in inner if not settings.excludes(os.path.dirname(file) + "/")]
        for file in files:
            # A file without a section for tclint does not count.
            nearest = find_config(Path(file).parent)
            if nearest is not None and str(nearest) == file != own:
                found.setdefault(os.path.dirname(file), nearest)
    nested = []
    for folder, at in sorted(found.items(), key=lambda item: -len(item[0])):
        loaded = met_settings(at, settings, config, flags)
        nested.append((folder, replace(loaded, baseline=settings.baseline or loaded.baseline)))
    return replace(settings, nested=tuple(nested))


def met_settings(file: Path, run: Settings, run_file: Path | None, flags: Mapping[str, Any]) -> Settings:
    """The settings of a configuration file that the run did not choose, with the flags on top; see
    `load_met_config`.

    Raises:
        UsageError: the file cannot be read or is invalid.
    """
    settings = load_met_config(file, run, run_file)
    has_rules = any(key != "libraries" for key, _ in settings.refused)
    return with_flags(without_unknown_rules(settings) if has_rules else settings, flags)


def file_of(target: str) -> str:
    """The file or folder that a target names; a target with a module's import name is returned unchanged."""
    return target.rpartition(":")[0] if is_model_target(target) and ".py:" in target else target


def grouped(targets: Sequence[Any], settings: Settings) -> dict[Settings, list[Any]]:
    """Settings -> the targets for which they hold, the run's own settings first. A folder counts for each
    project in it."""
    groups: dict[Settings, list[Any]] = {}
    folders = [folder for folder, _ in settings.nested]

    def of(folder: str) -> Settings:
        own = next((found for root, found in settings.nested if root == folder), settings)
        inner = tuple(
            other for other in folders if other != folder and (folder == "" or is_below(other, [folder]))
        )
        return replace(own, nested=(), left_out=inner)

    for target in targets:
        path = os.path.abspath(file_of(target)) if isinstance(target, str) else ""
        owner = next((folder for folder in folders if path and is_below(path, [folder])), "")
        if settings.force_exclude and path == os.path.abspath(target) and settings.excludes(path):
            owner = ""  # a project that the run excludes does not count
        groups.setdefault(of(owner), []).append(target)
        if path and os.path.isdir(path):
            for folder in folders:
                if folder != owner and is_below(folder, [path]):
                    groups.setdefault(of(folder), []).append(os.path.relpath(folder))
    return groups


def settings_of(model: DeclaredModel, settings: Settings, flags: Collection[str] = ()) -> Settings:
    """The settings under which an entry is linted; fields in `flags`, set on the command line, win."""
    values = {name: value for name, value in model.values if name not in flags}
    # A list of inputs and sets of inputs exclude each other, so the entry's own replaces the file's.
    if "inputs" in values and "input_sets" not in flags:
        values.setdefault("input_sets", ())
    if "input_sets" in values and "inputs" not in flags:
        values.setdefault("inputs", ())
    return replace(settings, **values, explicit=settings.explicit | frozenset(values))  # type: ignore[arg-type]


def target_of(model: DeclaredModel) -> str:
    """The target as it would be typed in the working directory."""
    path, colon, attribute = model.target.rpartition(":")
    if not path.endswith(".py"):
        return model.target
    path = os.path.join(model.root, os.path.expanduser(path))
    try:
        return os.path.relpath(path) + colon + attribute
    except ValueError:  # another drive
        return path + colon + attribute


def check_targets(
    targets: Sequence[str],
    settings: Settings,
    on_progress: Progress | None = None,
    *,
    contents: Mapping[str, bytes] | None = None,
    cache: TraceCache | None = None,
) -> Report:
    """Like `check`, but with the settings of nested projects for their targets; one report for all."""
    from tclint.engine.check import check

    if not settings.nested:
        return check(targets, settings, on_progress=on_progress, contents=contents, cache=cache)
    groups = grouped(targets, settings).items()
    return _merged_as_made(
        (check(group, own, on_progress, contents=contents, cache=cache) for own, group in groups), settings
    )


def check_declared(
    settings: Settings,
    more: Sequence[str] = (),
    *,
    flags: Collection[str] = (),
    cache: TraceCache | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Lint every declared model under its own settings; one report for all.

    Args:
        more: other targets, linted under `settings`; training scripts among them do not affect the models.

    Raises:
        UsageError: a model is given twice with different settings, or a setting is wrong.
        Interrupted: see `check`.
    """
    from tclint.engine.check import check

    own = replace(settings, nested=())
    given = [(target_of(model), settings_of(model, own, flags), model.target) for model in settings.models]
    typed = grouped([target for target in more if is_model_target(target)], settings)
    given += [
        (target, replace(own, left_out=()), target) for own, targets in typed.items() for target in targets
    ]
    groups: dict[Settings, list[str]] = {}
    owners: dict[str, Settings] = {}
    for target, own, name in given:
        if owners.setdefault(target, own) != own:
            raise UsageError(
                f"The model {name!r} is declared or given twice with different settings; give it once, with "
                "'input-set' for several inputs, or add a second callable."
            )
        if target not in groups.setdefault(own, []):
            groups[own].append(target)
    paths = [target for target in more if not is_model_target(target)]
    if not groups and not paths:
        return check((), replace(settings, nested=()))

    def reports() -> Iterator[Report]:
        for own, targets in groups.items():
            yield check(targets, own, on_progress, cache=cache)
        if paths:
            yield check_targets(paths, settings, on_progress)

    return _merged_as_made(reports(), settings)


def _merged_as_made(reports: Iterable[Report], settings: Settings) -> Report:
    """One report for all, also for those that were made before a KeyboardInterrupt."""
    from tclint.engine.report import Interrupted

    made: list[Report] = []
    try:
        for report in reports:
            made.append(report)
    except KeyboardInterrupt as error:
        made += [error.report] if isinstance(error, Interrupted) else []
        if not made:
            raise
        raise Interrupted(merged(made, settings)) from error
    return merged(made, settings)


_LISTS = ("entries", "findings", "below_min_gain", "suppressed", "skipped", "errors", "baselined", "paths")


def merged(reports: list[Report], settings: Settings) -> Report:
    """Merge reports on different targets into one; findings are ranked anew, entries stay in order."""
    from tclint.engine.check import rank
    from tclint.engine.report import Report
    from tclint.engine.same_findings import joined

    order = {target_of(model): index for index, model in reversed(list(enumerate(settings.models)))}

    def position(target: str) -> int:
        return order.get(target.partition(" [")[0], len(order))

    lists: dict[str, Any] = {
        name: tuple(item for report in reports for item in getattr(report, name)) for name in _LISTS
    }
    for name in ("entries", "errors"):
        lists[name] = tuple(sorted(lists[name], key=lambda item: position(item.target)))
    for name in ("findings", "below_min_gain"):
        lists[name] = tuple(rank(joined(lists[name])))
    gpus = dict.fromkeys(gpu for report in reports for gpu in report.settings.gpus)
    return Report(
        settings=replace(settings, gpus=tuple(gpus)),
        source_files=sum(report.source_files for report in reports),
        digests={path: digest for report in reports for path, digest in report.digests.items()},
        models_trained={key: found for report in reports for key, found in report.models_trained.items()},
        contents={path: data for report in reports for path, data in report.contents.items()},
        **lists,
    )
