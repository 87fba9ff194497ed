"""Codemods by topic; importing this package registers all of them."""

from tclint.edits.codemod import CODEMODS
from tclint.edits.codemods import (
    accumulation,
    attention,
    autocast,
    biases,
    calls,
    checkpoints,
    deprecated_amp,
    layout,
    lifetime,
    losses,
    norms,
    scaler,
    scaling,
    switches,
    widths,
)

__all__ = [
    "CODEMODS",
    "accumulation",
    "attention",
    "autocast",
    "biases",
    "calls",
    "checkpoints",
    "deprecated_amp",
    "layout",
    "lifetime",
    "losses",
    "norms",
    "scaler",
    "scaling",
    "switches",
    "widths",
]
