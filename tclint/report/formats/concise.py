"""One line a finding, `path:line:column: level CODE [*] message [gain]`: for editors, pre-commit and grep."""

from __future__ import annotations

from tclint.core.finding import Finding
from tclint.core.text import printable
from tclint.core.units import percent_text
from tclint.engine.report import Report
from tclint.report.render import Style
from tclint.report.words import best_effect, conclusion, models_text, place_text


def render(report: Report, style: Style) -> str:
    """The findings by rank, and last the counts, unless the style is quiet. The command writes errors to
    standard error."""
    last = () if style.verbosity < 0 else (conclusion(report),)
    return "".join(f"{line}\n" for line in (*map(finding_line, report.findings), *last))


def finding_line(finding: Finding) -> str:
    """'model.py:7:24: warning DIM003 The vocabulary ... (head, model.py:GPT) [10 % on a100-sxm4-80gb]'.

    A star in brackets marks what --fix fixes.
    """
    where = ", ".join(filter(None, (finding.location.module_path, models_text(finding))))
    layer = f" ({where})" if where else ""
    best = best_effect(finding.effect)
    gain = f" [{percent_text(best[1].gain_percent)} on {best[0]}]" if best else ""
    message = " ".join(finding.message.split())
    code = f"{finding.code} [*]" if finding.has_edits("safe") else finding.code
    return printable(f"{place_text(finding.location)}: {finding.level} {code} {message}{layer}{gain}")
