"""Marks findings that torch.compile fixes by itself as information, which fails no run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tclint.analysis.graph_context import GraphContext
from tclint.core.finding import Effect, Finding

Check = Callable[["GraphContext"], Iterator[Finding]]


def annotate_if_compile_fixes(context: GraphContext, check: Check, what: str) -> Iterator[Finding]:
    """The findings of `check`. Under torch.compile they include those of the eager model, marked as handled.

    Where the compiled step still gains (Inductor's padding copies, the source's does not), that gain is
    the effect; else the effect is that torch.compile handles it.

    Args:
        context: the model under the run's settings.
        check: a rule's check.
        what: the action of torch.compile in words: 'pads such products'.
    """
    if not context.settings.compiled:
        yield from check(context)
        return
    least = context.settings.min_gain_percent
    eager = {
        finding.fingerprint: finding
        for finding in check(context.with_settings(compiled=False))
        if (finding.effect.best_gain_percent or 0.0) >= least
    }
    for finding in check(context):
        gain_percent = finding.effect.best_gain_percent
        if gain_percent is None or gain_percent >= least:
            eager.pop(finding.fingerprint, None)
            yield _marked(finding, f"torch.compile handles this, it {what}; the gain is what remains.")
        elif finding.fingerprint not in eager:
            yield finding
    for finding in eager.values():
        marked = _marked(finding, f"That is eager execution: torch.compile handles this, it {what}.")
        yield replace(marked, effect=Effect(unknown=f"torch.compile handles this: it {what}"), change=None)


def _marked(finding: Finding, note: str) -> Finding:
    return replace(
        finding,
        level="info",
        message=f"{finding.message} {note}",
        evidence={**finding.evidence, "torch_compile_handles_this": True},
    )


PADS = "pads such products"
