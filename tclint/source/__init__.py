"""The source pass: training scripts read without running them, without torch.

Importing this package stays cheap; libcst is loaded when the first file is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tclint.engine.source_pass import SourceResult, lint
from tclint.source.syntax.discovery import Skipped, discover

if TYPE_CHECKING:
    from tclint.source.context import SourceContext

__all__ = ["Skipped", "SourceContext", "SourceResult", "discover", "lint"]


def __getattr__(name: str) -> object:
    if name == "SourceContext":
        from tclint.source.context import SourceContext

        return SourceContext
    raise AttributeError(f"module 'tclint.source' has no attribute {name!r}")
