"""Recurrent layers and cells, as cuDNN runs them."""

from __future__ import annotations

from tclint.graph.lower_base import Rule

RULES: dict[str, Rule] = {}
