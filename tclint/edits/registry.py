"""Asks the codemods: findings of one file in, the same findings with edits out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from tclint.core.finding import Edit, Finding, Fix
from tclint.edits.codemod import Proposal
from tclint.edits.codemods import CODEMODS
from tclint.edits.document import Document, NotEditable

_RECURSION_LIMIT = 6_000


def with_fixes(path: str, text: str, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with edits where a codemod has some; those that have edits already keep them."""
    if not any(_wants_edits(finding) for finding in findings):
        return list(findings)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    try:
        document = Document.of(text)
        return [
            _with_fix(path, document, finding) if _wants_edits(finding) else finding for finding in findings
        ]
    except (NotEditable, RecursionError):
        return list(findings)
    finally:
        sys.setrecursionlimit(limit)


def _wants_edits(finding: Finding) -> bool:
    return finding.code in CODEMODS and finding.target is None and not (finding.fix and finding.fix.edits)


def _with_fix(path: str, document: Document, finding: Finding) -> Finding:
    proposal = CODEMODS[finding.code](document, finding)
    if proposal is None:
        return finding
    advice = proposal.advice or (finding.fix.advice if finding.fix else "") or finding.message
    edits = edits_of(path, document, proposal)
    return replace(finding, fix=Fix(advice, proposal.safety, edits))


def edits_of(path: str, document: Document, proposal: Proposal) -> tuple[Edit, ...]:
    """The proposal's changes by line and column, in the order of the text."""
    changes = sorted(proposal.changes, key=lambda change: (change.start, change.end))
    return tuple(
        Edit(path, document.position(change.start), document.position(change.end), change.text)
        for change in changes
    )
