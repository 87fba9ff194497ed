"""Finds what a configuration file probably means differently: misspelt keys, references to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from tclint.source.recipes.interpolation import dangling
from tclint.source.recipes.reading import Recipe
from tclint.source.recipes.tree import Node

_NEAR = 0.92
"""Least similarity of a misspelt key: 'micro_batch_sise' has 0.94, a key with eval_ for train_ less."""


def doubts(recipe: Recipe, is_whole: bool) -> Iterator[str]:
    """A sentence with its line for every misspelt key and every reference to a key that the file lacks.

    Args:
        is_whole: whether the file is meant to stand alone; another file may define what part of a tree of
            configurations refers to.
    """
    for node, written, meant in misspelt_keys(recipe):
        yield (
            f"line {node.span.line}: tclint knows no key {written!r} of {recipe.format.name}s; did you mean "
            f"{meant!r}?"
        )
    for node in dangling(recipe.root) if is_whole else ():
        yield (
            f"line {node.span.line}: {str(node.value).strip()} refers to a key that is not in this file, so "
            "its value is not known"
        )


def misspelt_keys(recipe: Recipe) -> Iterator[tuple[Node, str, str]]:
    """(value, key as written, key probably meant) of unknown keys that resemble one which the file lacks."""
    present, known = recipe.chosen.entries, recipe.format.keys
    for written, node in present.items():
        if written in known:
            continue
        near = [key for key in known if key not in present and _is_near(written, key)]
        if near:
            yield node, written, near[0]


def _is_near(written: str, known: str) -> bool:
    return SequenceMatcher(None, written, known).ratio() >= _NEAR
