"""Codemods by topic; importing this package registers all of them."""

from tclint.edits.codemod import CODEMODS
from tclint.edits.codemods import (  # noqa: F401  each registers its own
    attention,
    autocast,
    biases,
    calls,
    checkpoints,
    deprecated_amp,
    layout,
    losses,
    scaler,
    scaling,
    switches,
)

__all__ = ["CODEMODS"]
