"""Codemods by topic; importing this package registers all of them."""

from tclint.fix.codemod import CODEMODS
from tclint.fix.codemods import (
    accumulation,
    autocast,
    calls,
    checkpoints,
    deprecated_amp,
    layout,
    lifetime,
    losses,
    scaler,
    scaling,
    switches,
    widths,
)

__all__ = [
    "CODEMODS",
    "accumulation",
    "autocast",
    "calls",
    "checkpoints",
    "deprecated_amp",
    "layout",
    "lifetime",
    "losses",
    "scaler",
    "scaling",
    "switches",
    "widths",
]
