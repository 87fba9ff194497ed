"""Fixes: turns the findings of source rules into edits, and applies them to the text.

Importing this package stays cheap; the codemods are loaded for the first file that has something to fix.
"""

from __future__ import annotations

from collections.abc import Sequence

from tclint.core.finding import Finding

__all__ = ["with_fixes"]


def with_fixes(path: str, text: str, findings: Sequence[Finding]) -> list[Finding]:
    """The findings of one file, with the edits that fix them if a codemod can make them."""
    from tclint.edits.registry import with_fixes as propose

    return propose(path, text, findings)
