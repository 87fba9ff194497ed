"""Models of fixtures/, traced in this process, and what rules find in them."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import tclint
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.graph_rule import GraphRule
from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.graph.ops import Graph

FIXTURES = Path(__file__).parents[2] / "fixtures"


def load(path: Path) -> Any:
    """The module at `path`, imported under a name of its own."""
    name = f"tclint_example_{path.stem}_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def trace_file(path: Path, **build: Any) -> Graph:
    """The graph of a file's build_model, on its example_inputs where it has them."""
    module = load(path)
    inputs = module.example_inputs() if hasattr(module, "example_inputs") else None

    # A lambda would hide the line of the user's function from the tracer.
    if not build:
        return tclint.trace(module.build_model, inputs)
    return tclint.trace(lambda: module.build_model(**build), inputs)


@lru_cache(maxsize=64)
def trace_fixture(name: str, **build: Any) -> Graph:
    return trace_file(FIXTURES / f"{name}.py", **build)


def context_of(graph: Graph, **settings: Any) -> GraphContext:
    return GraphContext(graph, Settings(**settings), "example.py:build_model")


def findings_that_count(rule: GraphRule, context: GraphContext) -> list[Finding]:
    """What a user would see: errors, and findings whose gain is unknown or at least the minimum."""
    least = context.settings.min_gain_percent
    found = []
    for finding in rule.check(context):
        gain_percent = finding.effect.best_gain_percent
        if finding.level == "error" or gain_percent is None or gain_percent >= least:
            found.append(finding)
    return found
