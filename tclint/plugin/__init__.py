"""What every rule imports: rule classes, findings and fixes, settings, and facts about GPUs and precisions.

Rules on training programs find more in `tclint.plugin.source`, rules on traced models in
`tclint.plugin.graph`. All other modules of tclint may move.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tclint.analysis.graph_rule import GraphRule
from tclint.config.precisions import PRECISION_FACTS
from tclint.config.settings import OPTIMIZERS, Settings
from tclint.core.finding import Confidence, Edit, Effect, Finding, Fix, GpuEffect, Level, Location, Related
from tclint.core.rule import Rule, rules_of
from tclint.core.units import count
from tclint.source.source_rule import SourceRule

if TYPE_CHECKING:
    from tclint.analysis.change import Change, resize
    from tclint.analysis.graph_context import GraphContext
    from tclint.cost.gpu import Gpu, load_gpu
    from tclint.graph.dims.coupled import DimsUnresolved
    from tclint.graph.ops import Graph, Op, Site, TensorSpec
    from tclint.source.context import SourceContext
    from tclint.source.run.facts import distinct
    from tclint.source.run.values import Constant, Event, Symbol, Thing, options_of
    from tclint.source.syntax.tables import render

__all__ = [
    "OPTIMIZERS", "PRECISION_FACTS", "Change", "Confidence", "Constant", "DimsUnresolved", "Edit", "Effect",
    "Event", "Finding", "Fix", "Gpu", "GpuEffect", "Graph", "GraphContext", "GraphRule", "Level", "Location",
    "Op", "Related", "Rule", "Settings", "Site", "SourceContext", "SourceRule", "Symbol", "TensorSpec",
    "Thing", "count", "distinct", "load_gpu", "options_of", "render", "resize", "rules_of",
]  # fmt: skip

# A rule on sources does without the graph and its prices, a rule on models without the reader of sources.
_IMPORTED_WHEN_ASKED_FOR = {
    "tclint.analysis.change": ("Change", "resize"),
    "tclint.analysis.graph_context": ("GraphContext",),
    "tclint.cost.gpu": ("Gpu", "load_gpu"),
    "tclint.graph.dims.coupled": ("DimsUnresolved",),
    "tclint.graph.ops": ("Graph", "Op", "Site", "TensorSpec"),
    "tclint.source.context": ("SourceContext",),
    "tclint.source.run.facts": ("distinct",),
    "tclint.source.run.values": ("Constant", "Event", "Symbol", "Thing", "options_of"),
    "tclint.source.syntax.tables": ("render",),
}


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _IMPORTED_WHEN_ASKED_FOR.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(home), name)
    return found
