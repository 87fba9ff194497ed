"""The report for people: findings file by file, then what was priced, assumed and left out.

Of more than a few models it is a table; -v describes each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

from tclint.config.precisions import precision_title
from tclint.core.finding import Effect, Finding, GpuEffect, Level, Location
from tclint.core.table import table
from tclint.core.terminal import hyperlink
from tclint.core.text import columns, printable, wrapped
from tclint.core.units import count, flops_text, percent_text, plural, time_text, uncertainty_text
from tclint.engine.report import Entry, Report
from tclint.report.excerpt import SourceLines, excerpt
from tclint.report.formats.json import statistics
from tclint.report.overview import FEW_MODELS, overview
from tclint.report.render import Style
from tclint.report.step_text import comparison_table, entry_lines, gap_text
from tclint.report.words import (
    at_text,
    best_effect,
    conclusion,
    doubts,
    elsewhere_text,
    felt_text,
    models_text,
    place_text,
    savings_text,
    skipped_word,
    step_and_error,
)

LISTED_AT_MOST = 5
"""Assumptions, gaps and skipped files beyond this are counted; -v lists them."""

_COLOURS: dict[Level, str] = {"error": "red", "warning": "yellow", "info": "cyan"}

KERNEL_TIME = "Times are predicted kernel time of one step: no launch gaps, data loading or communication."
ERROR = (
    "+-: mean deviation of such predictions on measured shapes that the calibration did not see; from 50 % "
    "on, few such shapes were measured."
)
EXPLAINED = "-v explains the columns."
IN_TABLE = "-v describes each model and its findings; --format concise prints one line per finding."

LEGEND = (
    f"{KERNEL_TIME} {ERROR} "
    "ready: share of the step in operators that run efficiently on Tensor Cores. "
    "on TC: share in kernels that use them at all. "
    "ceiling: largest speed-up if only the work on Tensor Cores got faster."
)


def render(report: Report, style: Style | None = None) -> str:
    """The whole report, as wide as its style says where words allow it."""
    renderer = _Renderer(report, style or Style())
    return "".join(f"{line}\n" for line in renderer.lines())


@dataclass
class _Renderer:
    report: Report
    style: Style

    def lines(self) -> Iterator[str]:
        for doubt in doubts(self.report):
            yield from self._wrapped(doubt, "", "  ")
            yield ""
        as_table = len(self.report.entries) > FEW_MODELS and self.style.verbosity == 0
        yield from self._findings(of_models=not as_table)
        if as_table:
            yield from overview(self.report)
            yield ""
        elif self.style.verbosity >= 0:
            for entry in self.report.entries:
                yield from self._entry(entry)
                yield ""
        yield from self._ranking()
        if self.report.entries and self.style.verbosity >= 0:
            brief = f"{KERNEL_TIME} {ERROR} {IN_TABLE if as_table else EXPLAINED}"
            yield from self._wrapped(LEGEND if self.style.verbosity > 0 else brief, "")
            yield ""
        yield from self._errors()
        if self.style.verbosity >= 0:
            skipped = [f"{skipped_word(item)} {item.path}: {item.reason}" for item in self.report.skipped]
            yield from self._some(skipped, "skipped file", indent="")
        # Of a saved report it is known how many they were.
        if self.style.verbosity > 0 and not self.report.made_with:
            yield from self._counted("below --min-gain", self.report.below_min_gain)
            yield from self._counted("suppressed", self.report.suppressed)
            yield from self._counted("accepted by the baseline", self.report.baselined)
            for sentence in self.report.held_back:
                yield from self._wrapped(printable(sentence), "", "  ")
        if self.style.statistics:
            yield from self._statistics()
        if self.style.verbosity >= 0:
            yield from self._wrapped(conclusion(self.report), "")

    # --- findings

    def _ranking(self) -> Iterator[str]:
        """What the order of priced findings is by where there are several GPUs; verbosely, that on each."""
        gpus = self.report.settings.gpus
        priced = [finding for finding in self.report.findings if finding.effect.best_gain_percent is not None]
        if len(gpus) < 2 or len(priced) < 2 or self.style.verbosity < 0:
            return
        more = "" if self.style.verbosity else "; -v ranks them on each"
        yield from self._wrapped(f"Findings are ranked by their largest gain on any of the GPUs{more}.", "")
        for gpu in gpus if self.style.verbosity > 0 else ():
            gains = [
                (one.effect.per_gpu[gpu].gain_percent, one) for one in priced if gpu in one.effect.per_gpu
            ]
            ranked = (
                f"{one.code} {place_text(one.location)} {percent_text(gain)}"
                for gain, one in sorted(gains, key=lambda gain: -gain[0])
            )
            yield from self._wrapped(f"on {gpu}: {'; '.join(ranked)}", "  ", "    ")
        yield ""

    def _findings(self, *, of_models: bool) -> Iterator[str]:
        source = SourceLines.of(self.report)
        # Errors are always shown in full: they must be solved, however many models there are.
        for finding in grouped_by_file(
            finding
            for finding in self.report.findings
            if of_models or finding.target is None or finding.level == "error"
        ):
            yield from self._finding(finding, source)
            yield ""

    def _finding(self, finding: Finding, source: SourceLines) -> Iterator[str]:
        place = printable(place_text(finding.location))
        level = self._paint(finding.level, fg=_COLOURS[finding.level], bold=True)
        rule = f"{self._paint(finding.code, bold=True)} {finding.name}"
        module_path = finding.location.module_path
        layer = f" ({printable(module_path)})" if module_path else ""
        shown = self._linked(self._paint(place, bold=True), finding.location)
        models = models_text(finding, len(finding.targets) if self.style.verbosity > 0 else 3)
        models = f" in {printable(models)}" if models else ""
        head = f"{place}: {finding.level} {finding.code} {finding.name}{layer}{models}"
        on_one_line = columns(head) <= self.style.width
        yield f"{shown}: {level} {rule}{layer}{models if on_one_line else ''}"
        if models and not on_one_line:
            yield from self._wrapped(models.strip(), "  ", "    ")
        yield from self._wrapped(finding.message, "  ")
        for line in excerpt(finding.location, source, self.style.width - 4):
            yield f"    {line}"
        yield from self._effect(finding)
        yield from self._some(
            [f"see {place_text(related.location)}: {related.message}" for related in finding.related],
            "related place",
        )
        if finding.fix is not None:
            note = f" ({finding.fix.safety})" if finding.fix.edits else ""
            yield from self._wrapped(f"fix{note}: {finding.fix.advice}", "  ", "    ")
        if self.style.verbosity > 0:
            yield from self._wrapped(
                f"confidence {finding.confidence}, fingerprint {finding.fingerprint}", "  "
            )

    def _effect(self, finding: Finding) -> Iterator[str]:
        effect = finding.effect
        if effect.unknown is not None or not effect.per_gpu:
            if self.style.verbosity > 0 and finding.is_about_speed:
                why = effect.unknown or "not priced"
                yield from self._wrapped(f"no predicted effect: {why}", "  ", "    ")
            return
        if self.style.verbosity > 0:
            yield from _effect_table(effect)
        elif best := best_effect(effect):
            gpu, priced = best
            costs, gains, share, uncertainty = _priced(priced)
            gains += elsewhere_text(priced)
            said = f"costs {costs}, fix gains {gains}, {share} of the step ({uncertainty}), on {gpu}"
            yield from self._wrapped(said + _notes(priced), "  ", "    ")
        if saved := savings_text(effect):
            yield from self._wrapped(saved, "  ", "    ")

    # --- entries

    def _entry(self, entry: Entry) -> Iterator[str]:
        model = f": {printable(entry.model)}" if entry.model else ""
        how = f"{entry.mode}, {precision_title(entry.precision)}"
        if (entry.settings or self.report.settings).compiled:
            how += ", compiled"
        worst = ", the worst of its sets of inputs" if entry.is_worst_case else ""
        yield f"{self._paint(printable(entry.target), bold=True)}{model} ({how}){worst}"
        yield (
            f"  {count(entry.parameters)} parameters, {flops_text(entry.flops)} forward, "
            f"{plural(entry.op_count, 'operator')}"
        )
        for name, dtype, shape in entry.inputs:
            size = "x".join(str(extent) for extent in shape) or "scalar"
            yield from self._wrapped(f"input {name or '(unnamed)'}: {dtype} {size}", "  ", "    ")
        yield from table(
            ("GPU", "predicted step", "ready", "on TC", "ceiling"),
            [
                (
                    gpu + ("" if metrics.calibrated else " *"),
                    step_and_error(metrics),
                    percent_text(metrics.readiness_percent),
                    percent_text(metrics.tensor_core_time_percent),
                    _ceiling(metrics.amdahl_ceiling),
                )
                for gpu, metrics in entry.metrics.items()
            ],
        )
        if any(not metrics.calibrated for metrics in entry.metrics.values()):
            yield "  * inherited constants: measured on another GPU or in another precision"
        for line in entry_lines(entry):
            yield from self._wrapped(line, "  ", "    ")
        yield from self._comparisons(entry)
        yield from self._layers(entry)
        assumed = []
        for assumption in entry.assumptions:
            if assumption.is_doubtful:
                continue  # the report opens with it
            times = f", {assumption.count} times" if assumption.count > 1 else ""
            assumed.append(f"assumed: {assumption.what}{at_text(assumption.site)}{times}")
        yield from self._some(assumed, "assumption")
        yield from self._some(
            [f"not analysed, in no time above: {gap_text(gap)}" for gap in entry.not_analysed],
            "kind of operator not analysed",
            "kinds of operator not analysed",
        )
        if self.style.verbosity > 0 and entry.seconds:
            parts = (f"{step} {seconds:.2f} s" for step, seconds in entry.seconds.items())
            yield from self._wrapped("took " + ", ".join(parts), "  ", "    ")
        yield from self._printed(entry.captured_output)

    def _layers(self, entry: Entry) -> Iterator[str]:
        settings = entry.settings or self.report.settings
        if not self.report.settings.layers:
            return
        from tclint.report.layers import layer_table, layers

        steps_us = {gpu: metrics.step_time_us for gpu, metrics in entry.metrics.items()}
        shown, notes = layer_table(layers(entry, settings, each=self.style.verbosity > 0), steps_us)
        yield ""
        yield "  layers" if shown.rows else "  layers: the report has no graph"
        yield from table(tuple(shown.header), shown.rows)
        for note in notes:
            yield from self._wrapped(note, "  ", "     ")
        yield ""

    def _comparisons(self, entry: Entry) -> Iterator[str]:
        for comparison in entry.comparisons:
            title, shown, notes = comparison_table(comparison)
            yield ""
            yield f"  {title}"
            if comparison.unavailable is not None:
                yield from self._wrapped(f"none: {comparison.unavailable}", "    ")
            yield from table(tuple(shown.header), shown.rows)
            for note in notes:
                yield from self._wrapped(note, "  ", "    ")

    # --- what is not a finding

    def _errors(self) -> Iterator[str]:
        for error in self.report.errors:
            target = printable(error.target)
            message = printable(error.message)
            label = self._paint("error", fg="red", bold=True)
            yield f"{label}: {message}" if target in message else f"{label}: {target}: {message}"
            yield from self._printed(error.captured_output)

    def _printed(self, output: str) -> Iterator[str]:
        if self.style.verbosity > 0 and output.strip():
            yield "  it printed:"
            for line in output.rstrip().split("\n"):
                yield f"  > {printable(line.expandtabs(4))}"

    def _counted(self, why: str, findings: Iterable[Finding]) -> Iterator[str]:
        for finding in findings:
            text = f"{why}: {place_text(finding.location)}: {finding.code} {finding.name}: {finding.message}"
            yield from self._wrapped(text, "", "  ")

    def _statistics(self) -> Iterator[str]:
        counts = ("findings", "below_min_gain", "suppressed")
        rows = [
            (f"{row['code']} {row['name']}", *(str(row[name]) for name in counts))
            for row in statistics(self.report)
        ]
        yield from table(("rule", "findings", "below min-gain", "suppressed"), rows)
        yield ""

    # --- helpers

    def _some(self, items: list[str], noun: str, nouns: str = "", indent: str = "  ") -> Iterator[str]:
        shown = items if self.style.verbosity > 0 else items[:LISTED_AT_MOST]
        for item in shown:
            yield from self._wrapped(item, indent, indent + "  ")
        if len(shown) < len(items):
            yield f"{indent}... {plural(len(items) - len(shown), noun, nouns)} more (-v lists all)"

    def _wrapped(self, text: str, indent: str, hanging: str | None = None) -> list[str]:
        return wrapped(printable(text), self.style.width, indent, hanging)

    def _linked(self, text: str, location: Location) -> str:
        return hyperlink(text, location.path, location.line) if self.style.links else text

    def _paint(self, text: str, *, fg: str | None = None, bold: bool = False) -> str:
        return click.style(text, fg=fg, bold=bold) if self.style.colour else text


def grouped_by_file(findings: Iterable[Finding]) -> list[Finding]:
    """Ranked findings with those of one file together, files in the order of their first."""
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        by_file.setdefault(finding.location.path, []).append(finding)
    return [finding for found in by_file.values() for finding in found]


def _priced(priced: GpuEffect) -> tuple[str, str, str, str]:
    return (
        time_text(priced.cost_us),
        time_text(priced.gain_us),
        percent_text(priced.gain_percent),
        uncertainty_text(priced.uncertainty_percent),
    )


def _notes(priced: GpuEffect) -> str:
    return (
        ("" if priced.calibrated else ", inherited constants")
        + (", gain within the uncertainty" if priced.is_within_error else "")
        + felt_text(priced)
    )


def _effect_table(effect: Effect) -> Iterator[str]:
    header, *rows = table(
        ("predicted per step", "costs", "fix gains", "of step", "+-"),
        [(gpu, *_priced(priced)) for gpu, priced in effect.per_gpu.items()],
    )
    yield header
    for row, priced in zip(rows, effect.per_gpu.values(), strict=True):
        yield row + elsewhere_text(priced) + _notes(priced)


def _ceiling(speed_up: float) -> str:
    return f"{speed_up:.2f}x" if math.isfinite(speed_up) and speed_up < 1000 else "none"
