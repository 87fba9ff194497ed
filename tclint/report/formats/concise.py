"""One line a finding, `path:line:column: CODE message [gain]`: for editors, pre-commit and grep."""

from __future__ import annotations

from tclint.core.finding import Finding
from tclint.core.text import printable
from tclint.core.units import percent_text
from tclint.engine.report import Report
from tclint.report.words import best_effect, models_text, place_text


def render(report: Report) -> str:
    """The findings by rank; nothing where there are none. The command writes errors to standard error."""
    return "".join(f"{line(finding)}\n" for finding in report.findings)


def line(finding: Finding) -> str:
    """'model.py:7:24: DIM003 The vocabulary of 50257 ... (head, model.py:GPT) [10 % on a100-sxm4-80gb]'."""
    where = ", ".join(filter(None, (finding.location.module_path, models_text(finding))))
    layer = f" ({where})" if where else ""
    best = best_effect(finding.effect)
    gain = f" [{percent_text(best[1].gain_percent)} on {best[0]}]" if best else ""
    message = " ".join(finding.message.split())
    return printable(f"{place_text(finding.location)}: {finding.code} {message}{layer}{gain}")
