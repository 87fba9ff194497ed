"""What a shell offers for the next word: GPUs, rules, choices, files, and the models in a file.

Nothing here fails: a shell in the middle of a word shows no errors, so what cannot be known offers nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from tclint.config.kinds import Kind
from tclint.core.errors import TclintError
from tclint.report.render import FORMATS

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def of_kind(kind: Kind) -> Completion | None:
    """What completes the value of such a flag; None: nothing is known of it."""
    if kind.choices:
        return of_choices(kind.choices)
    return {"gpus": _gpus, "rules": rules, "files": files}.get(kind.names)


def of_choices(choices: Iterable[str]) -> Completion:
    """Completes a word of a list; after a comma, the next one."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _matching(((choice, None) for choice in choices), incomplete)

    return complete


formats = of_choices(FORMATS)


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shell's own completion of file names."""
    return [CompletionItem(incomplete, type="file")]


def targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files; behind 'model.py:' the callables in it that could be linted, by reading alone."""
    path, colon, _ = incomplete.rpartition(":")
    if not colon or not os.path.isfile(path):
        return files(context, parameter, incomplete)
    from tclint.engine.model_listing.candidates import list_models

    found, _ = list_models([path])
    return _matching(((f"{path}:{candidate.name}", candidate.kind) for candidate in found), incomplete)


def rules(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codes of the installed rules, with their names."""
    from tclint.engine.rules.registry import known_rules

    with contextlib.suppress(TclintError):
        # A graph rule and a source rule may share a code.
        return _matching({rule.code: rule.name for rule in known_rules()}.items(), incomplete)
    return []


def _gpus(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tclint.cost.gpu import all_gpus

    with contextlib.suppress(TclintError):
        names = ((name, gpu.name) for gpu in all_gpus() for name in (gpu.id, *gpu.aliases))
        return _matching(names, incomplete)
    return []


def _matching(words: Iterable[tuple[str, str | None]], incomplete: str) -> list[CompletionItem]:
    before, comma, word = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{value}", help=description)
        for value, description in words
        if value.lower().startswith(word.lower())
    ]
