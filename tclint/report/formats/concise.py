"""One line a finding, `path:line:column: CODE message [gain]`: for editors, pre-commit and grep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tclint.core.text import printable
from tclint.core.units import percent_text
from tclint.report.words import best_effect, place_text

if TYPE_CHECKING:
    from tclint.core.finding import Finding
    from tclint.engine.report import Report


def render(report: Report) -> str:
    """The findings by rank; nothing where there are none. The command writes errors to standard error."""
    return "".join(f"{line(finding)}\n" for finding in report.findings)


def line(finding: Finding) -> str:
    """'model.py:7:24: DIM003 The vocabulary of 50257 ... (lm_head) [10 % on a100-sxm4-80gb]'."""
    module_path = finding.location.module_path
    layer = f" ({module_path})" if module_path else ""
    best = best_effect(finding.effect)
    gain = f" [{percent_text(best[1].gain_percent)} on {best[0]}]" if best else ""
    message = " ".join(finding.message.split())
    return printable(f"{place_text(finding.location)}: {finding.code} {message}{layer}{gain}")
