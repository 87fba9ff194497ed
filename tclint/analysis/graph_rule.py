"""The base class of rules on traced models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tclint.core.finding import Finding
from tclint.core.rule import Rule

if TYPE_CHECKING:
    from tclint.analysis.graph_context import GraphContext


class GraphRule(Rule):
    """A rule on a traced, priced graph. It reads `context` and yields findings; it never imports torch."""

    def check(self, context: GraphContext) -> Iterator[Finding]:
        raise NotImplementedError
