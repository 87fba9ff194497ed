"""Lints configuration files: those of a known format are run as the training that they set up."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tclint.config.settings import Settings
from tclint.core.finding import Finding, Location
from tclint.core.rule import apply_rule
from tclint.core.target import SCRIPT_SUFFIXES
from tclint.source.recipes.formats import MAX_BYTES, candidates, formats
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.discovery import Failed, Skipped
from tclint.source.syntax.parse import NotPython

if TYPE_CHECKING:
    from tclint.source.context import SourceContext


@dataclass
class RecipeResult:
    """The results of the pass over configuration files."""

    findings: list[Finding] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    errors: list[tuple[str, str, str]] = field(default_factory=list)
    """(path, sentence) of the named files that cannot be read or linted."""
    paths: list[str] = field(default_factory=list)
    """The files of a known format."""
    marked: dict[str, str] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)


def lint_recipes(
    paths: Sequence[str],
    named: Collection[str],
    rules: Sequence[SourceRule],
    settings: Settings,
    contents: Mapping[str, bytes],
) -> RecipeResult:
    """Run source rules over configuration files.

    Args:
        named: the files that the user named one by one; an error is reported if one cannot be read.
        contents: absolute path -> bytes to use instead of those on the disk.
    """
    result = RecipeResult()
    for path in paths:
        try:
            data = contents[path] if path in contents else _read(path, path in named)
        except OSError as error:
            unread = Skipped(path, f"it cannot be read ({error.strerror or error})")
            if path in named:
                result.errors.append((path, unread.sentence, ""))
            else:
                result.skipped.append(unread)
            continue
        # A file that the user names is read even so: what is broken in it may be what makes it unknown.
        if path not in named and not any(candidates(path, data)):
            continue
        _lint(path, data, path in named, rules, settings, result)
    return result


def _lint(
    path: str,
    data: bytes,
    is_named: bool,
    rules: Sequence[SourceRule],
    settings: Settings,
    result: RecipeResult,
) -> None:
    from tclint.source.context import SourceContext
    from tclint.source.recipes.doubts import doubts
    from tclint.source.recipes.reading import NotReadable, read_recipe
    from tclint.source.recipes.running import program_of
    from tclint.source.run.project import ProjectFiles

    try:
        recipe = read_recipe(path, data)
    except (NotReadable, NotPython) as error:
        kind = os.path.splitext(path)[1][1:].upper().replace("YML", "YAML")
        if is_named:
            place = f"{os.path.relpath(path)}:{error.line}:{error.column}"
            result.errors.append((path, f"{place} is not valid {kind}: {error}.", ""))
        else:
            result.skipped.append(Skipped(path, f"it is not valid {kind}: {error}, in line {error.line}"))
        return
    if recipe is None:
        if is_named:
            result.errors.append((path, _unknown(path, data), ""))
        return
    result.paths.append(path)
    result.skipped += (Skipped(path, doubt, is_part=True) for doubt in doubts(recipe, is_named))
    if b"tclint:" in data.lower():
        result.marked[path] = data.decode("utf-8-sig", "replace")
        result.digests[path] = hashlib.sha256(data).digest()
    try:
        context = SourceContext(program_of(recipe, ProjectFiles(lambda _, __: None)), settings)
    except Exception as error:
        failed = Failed.of(path, error)
        if is_named:
            result.errors.append((path, failed.sentence, failed.details))
        else:
            result.skipped.append(failed)
        return
    found = list(_findings(context, rules, settings))
    if found:
        result.digests[path] = hashlib.sha256(data).digest()
        result.findings += sorted(found, key=_position)


def _findings(context: SourceContext, rules: Sequence[SourceRule], settings: Settings) -> Iterator[Finding]:
    for rule in rules:
        if rule.applies(settings):
            yield from apply_rule(rule, context, Location(context.path, 1))


def _position(finding: Finding) -> tuple[int, int, str]:
    return finding.location.line, finding.location.column, finding.code


def _read(path: str, is_named: bool) -> bytes:
    if not is_named and os.stat(path).st_size > MAX_BYTES:
        return b""  # a data file that nobody named
    with open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _unknown(path: str, data: bytes) -> str:
    if len(data) > MAX_BYTES:
        return (
            f"{os.path.relpath(path)!r} is larger than {MAX_BYTES // 1000} kB; such files are taken for data."
        )
    if path.lower().endswith(SCRIPT_SUFFIXES):
        return (
            f"{os.path.relpath(path)!r} starts no training whose options tclint knows: --model_name_or_path, "
            "--per_device_train_batch_size and the like."
        )
    known = (item.name for item in formats() if item.suffixes != SCRIPT_SUFFIXES)
    names = sorted({name.removesuffix(" configuration") for name in known}, key=str.lower)
    return (
        f"{os.path.relpath(path)!r} is not a training configuration that tclint knows: it reads those of "
        f"{', '.join(names[:-1])} and {names[-1]}."
    )
