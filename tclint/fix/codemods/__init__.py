"""Codemods by topic; importing this package registers all of them."""

from tclint.fix.codemod import CODEMODS
from tclint.fix.codemods import (
    accumulation,
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
