"""Codemods by topic; importing this package registers all of them."""

from tclint.fix.codemod import CODEMODS
from tclint.fix.codemods import autocast, calls, deprecated_amp, layout, scaler, scaling, switches

__all__ = ["CODEMODS", "autocast", "calls", "deprecated_amp", "layout", "scaler", "scaling", "switches"]
