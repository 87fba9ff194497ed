"""What several formats say of a finding in words: its effect, its fix, and the run in one sentence."""

from __future__ import annotations

from collections import Counter

from tclint.core.finding import LEVEL_ORDER, Effect, Finding, GpuEffect, Location
from tclint.core.text import listed
from tclint.core.units import hours_text, percent_text, plural, time_text, uncertainty_text
from tclint.engine.check import relative_path
from tclint.engine.report import Metrics, Report
from tclint.graph.ops import Site
from tclint.source.syntax.discovery import Skipped


def place_text(location: Location) -> str:
    """'model.py:7:24', 'train.ipynb:cell 3:2' (its second line)."""
    if location.cell is not None:
        return f"{location.path}:cell {location.cell}:{location.cell_line}"
    return f"{location.path}:{location.line}:{location.column}"


def best_effect(effect: Effect) -> tuple[str, GpuEffect] | None:
    """The GPU where the fix gains the largest share of the step, and the effect there; None where unknown."""
    if effect.unknown is not None:
        return None
    # NaN is last: it compares with nothing.
    return max(
        effect.per_gpu.items(),
        key=lambda item: (item[1].gain_percent == item[1].gain_percent, item[1].gain_percent),
        default=None,
    )


def effect_text(finding: Finding) -> str:
    """'Predicted gain per step: a100-sxm4-80gb 4.21 ms (10 % +-8 %); ...', or why it is unknown; '' where
    nothing is to be gained."""
    effect = finding.effect
    if not finding.is_about_speed:
        return ""
    if effect.unknown is not None or not effect.per_gpu:
        return f"Effect unknown: {effect.unknown or 'not priced'}."
    parts = [
        f"{gpu} {time_text(priced.gain_us)} ({percent_text(priced.gain_percent)} of the step, "
        f"{uncertainty_text(priced.uncertainty_percent)}{felt_text(priced)})"
        for gpu, priced in effect.per_gpu.items()
    ]
    saved = savings_text(effect)
    return f"Predicted gain per step: {'; '.join([*parts, *([saved] if saved else [])])}."


_MUCH = 0.2
"""The share of a gain from which on it is said where else it is."""
_UNFELT = 0.05
"""The share of a gain below which a difference is not mentioned."""


def elsewhere_text(priced: GpuEffect) -> str:
    """' (3.10 ms of it in cross_entropy_loss)', where a fix gains much in other operators than its own; else
    ''."""
    gains = {name: gain_us for name, gain_us in priced.elsewhere_us.items() if gain_us > 0.0}
    if not gains or sum(gains.values()) < _MUCH * priced.gain_us:
        return ""
    return f" ({time_text(sum(gains.values()))} of it in {listed(tuple(gains), 2)})"


def felt_text(priced: GpuEffect) -> str:
    """', 24.7 ms felt: launches take longer than the kernels'; '' unless they do, before or after the fix,
    and it makes a difference."""
    if priced.felt_us is None or abs(priced.felt_us - priced.gain_us) < _UNFELT * abs(priced.gain_us):
        return ""
    why = "launches take longer than the kernels"
    if abs(priced.felt_us) < _UNFELT * abs(priced.gain_us):
        return f", not felt: {why}"
    return f", {time_text(priced.felt_us)} felt: {why}"


def savings_text(effect: Effect) -> str:
    """'a run saves 15.3 GPU-hours (38.20) on a100-sxm4-80gb', where its steps are given and it saves some."""
    best = best_effect(effect)
    if best is None or (best[1].run_gpu_hours or 0.0) <= 0.0:
        return ""
    gpu, priced = best
    return f"a run saves {hours_text(priced.run_gpu_hours or 0.0, priced.run_price)} on {gpu}"


def gain_text(finding: Finding) -> str:
    """The largest gain, short: '10 %' or 'unknown'; '' where nothing is to be gained."""
    best = finding.effect.best_gain_percent
    if best is None:
        return "unknown" if finding.is_about_speed else ""
    return percent_text(best)


def models_text(finding: Finding, most: int = 3) -> str:
    """'net.py:build', 'a.py:A, b.py:B, c.py:C and 4 more'; '' for a finding that speaks of no model."""
    return listed(finding.targets, most)


def finding_text(finding: Finding) -> str:
    """Message, effect and advice, a paragraph each."""
    parts = [finding.message, *filter(None, [effect_text(finding)])]
    if finding.fix is not None:
        parts.append(f"Fix: {finding.fix.advice}")
    return "\n".join(parts)


def not_listed(report: Report) -> list[str]:
    """What was counted and is no finding of the list, a clause each."""
    clauses = []
    if report.below_min_gain:
        least = f"{report.settings.min_gain_percent:g} %"
        clauses.append(f"{len(report.below_min_gain)} more would gain less than {least} of the step")
    if report.suppressed:
        clauses.append(f"{plural(len(report.suppressed), 'finding')} suppressed by comments")
    if report.baselined:
        clauses.append(f"{plural(len(report.baselined), 'finding')} accepted by the baseline")
    if report.source_files:
        clauses.append(f"{plural(report.source_files, 'source file')} read")
    return clauses


def counts_text(report: Report) -> str:
    """'3 findings (1 error, 1 warning, 1 info)', 'no findings'."""
    if not report.findings:
        return "no findings"
    by_level = Counter(finding.level for finding in report.findings)
    levels = ", ".join(plural(by_level[level], level) for level in LEVEL_ORDER if by_level[level])
    return f"{plural(len(report.findings), 'finding')} ({levels})"


def model_count(report: Report) -> int:
    """How many models there are, not entries: a model in two precisions counts once."""
    return len({(entry.target.partition(" --")[0], entry.graph_hash) for entry in report.entries})


def step_text(metrics: Metrics) -> str:
    """'68.7 ms', or '5.10 to 390 ms' where what was guessed decides."""
    if metrics.step_time_range_us is None:
        return time_text(metrics.step_time_us)
    return " to ".join(map(time_text, metrics.step_time_range_us))


def step_and_error(metrics: Metrics) -> str:
    """'68.7 ms +-12 %'; a range says more than the error of its ends."""
    if metrics.step_time_range_us is not None:
        return step_text(metrics)
    return f"{step_text(metrics)} {uncertainty_text(metrics.uncertainty_percent)}"


def at_text(site: Site | None) -> str:
    """' (net.py:12)' behind what is said of a line; '' where none is known."""
    return f" ({relative_path(site.path)}:{site.line})" if site else ""


def doubts(report: Report) -> list[str]:
    """What every figure of a model rests on and nobody stated, a sentence for each model."""
    return [
        f"{entry.target}: every figure rests on a guess: {assumption.what}{at_text(assumption.site)}."
        for entry in report.entries
        for assumption in entry.assumptions
        if assumption.is_doubtful
    ]


def conclusion(report: Report) -> str:
    """'3 findings (1 error, 2 info) in 1 model and 2 files; 1 fixable with --fix; 2 suppressed.'"""
    looked_at = [plural(model_count(report), "model")] if report.entries else []
    if report.source_files or not (report.entries or report.errors):
        looked_at.append(plural(report.source_files, "file"))
    where = " and ".join(looked_at)
    if report.findings:
        by_level = Counter(finding.level for finding in report.findings)
        levels = ", ".join(f"{by_level[level]} {level}" for level in LEVEL_ORDER if by_level[level])
        head = f"{plural(len(report.findings), 'finding')} ({levels})" + (f" in {where}" if where else "")
    else:
        head = f"No findings in {where}" if where else "Nothing could be linted"
    unpriced = sum(
        finding.is_about_speed and finding.effect.best_gain_percent is None for finding in report.findings
    )
    whole = sum(not item.is_part for item in report.skipped)
    guessed = len(
        {entry.target for entry in report.entries if any(one.is_doubtful for one in entry.assumptions)}
    )
    counts = {
        f"{'model' if guessed == 1 else 'models'} priced on a guess": guessed,
        "fixable with --fix": sum(finding.has_edits("safe") for finding in report.findings),
        "fixable with --fix --unsafe-fixes": sum(finding.has_edits("unsafe") for finding in report.findings),
        f"more below --min-gain {report.settings.min_gain_percent:g} %": len(report.below_min_gain),
        "without a predicted effect": unpriced if report.entries else 0,
        "suppressed": len(report.suppressed),
        "accepted by the baseline": len(report.baselined),
        "file skipped" if whole == 1 else "files skipped": whole,
        "target failed" if len(report.errors) == 1 else "targets failed": len(report.errors),
    }
    return "; ".join([head, *(f"{count} {what}" for what, count in counts.items() if count)]) + "."


def skipped_word(item: Skipped) -> str:
    """What became of a file that was not analysed, or not whole."""
    return "partly read" if item.is_part else "skipped"
