"""What authors of rules import: the one stable path to rule classes, what rules see, and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tclint.analysis.change import Change, resize
from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import Settings
from tclint.core.finding import Confidence, Edit, Effect, Finding, Fix, GpuEffect, Level, Location, Related
from tclint.core.rule import Rule
from tclint.graph.dims.coupled import DimsUnresolved
from tclint.graph.ops import Graph, Op, Site, TensorSpec
from tclint.source.context import SourceContext
from tclint.source.run.facts import distinct
from tclint.source.run.values import Constant, Event, Symbol, Thing, options_of
from tclint.source.source_rule import SourceRule
from tclint.source.syntax.tables import render

if TYPE_CHECKING:
    from tclint.analysis.graph_context import GraphContext

__all__ = [
    "Change", "Confidence", "Constant", "DimsUnresolved", "Edit", "Effect", "Event", "Finding", "Fix",
    "GpuEffect", "Graph", "GraphContext", "GraphRule", "Level", "Location", "Op", "Related", "Rule",
    "Settings", "Site", "SourceContext", "SourceRule", "Symbol", "TensorSpec", "Thing", "distinct",
    "options_of", "render", "resize",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "GraphContext":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # It needs NumPy, which rules on sources do without.
    from tclint.analysis.graph_context import GraphContext

    return GraphContext
