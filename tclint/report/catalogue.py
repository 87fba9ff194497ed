"""What `tclint rules`, `tclint explain` and `tclint gpus` print."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import click

from tclint.analysis.graph_rule import GraphRule
from tclint.core.rule import DOC_SECTIONS, REFERENCES, Rule
from tclint.core.saved import picked
from tclint.core.table import table
from tclint.core.terminal import WIDTH
from tclint.core.text import printable, wrapped
from tclint.core.toml import packaged_toml
from tclint.core.units import percent_text
from tclint.cost.gpu import Calibration, Gpu
from tclint.engine.rules.index import PACKAGE
from tclint.engine.sources.silence import Answer
from tclint.report.render import Style

_PROSE = ("What it does", "Why it costs", "When it does not apply")
"""Sections that may be wrapped again; the others are code and lists."""


def rules_text(rules: Sequence[type[Rule]], active: Collection[tuple[str, str]]) -> str:
    """A row per rule and its summary beneath; `active`: code and kind of those that the settings select."""
    if not rules:
        return "No rules are installed.\n"
    width = max(len(rule.name) for rule in rules)
    lines = []
    for rule in rules:
        state = "on" if (rule.code, rule_kind(rule)) in active else "off"
        head = f"{rule.code:<7} {rule.name:<{width}}  {rule.level:<7}  {rule_kind(rule):<6}  {state}"
        lines.append(head.rstrip())
        lines += _wrap(rule.summary(), " " * 8)
    lines.append(f"\n{len(rules)} rules; 'tclint explain RULE' shows one.")
    return "\n".join(lines) + "\n"


def rules_json(rules: Sequence[type[Rule]], active: Collection[tuple[str, str]]) -> str:
    """`{"rules": [...]}`, sorted as given."""
    listed = [{**_rule(rule), "selected": (rule.code, rule_kind(rule)) in active} for rule in rules]
    return _dump({"rules": listed})


def rule_page(sides: Sequence[type[Rule]], style: Style) -> str:
    """One rule's page: summary, level, docstring sections, and the sources with their addresses.

    Args:
        sides: the class of the rule, or its two sides, which a section tells apart where they differ.
    """

    def heading(text: str) -> str:
        return click.style(text, bold=True) if style.colour else text

    lines = [heading(f"{sides[0].code} {sides[0].name}")]
    for part in summaries(sides):
        lines += _wrap(f"{part.side}: " * bool(part.side) + part.body, "")
    lines.append("")
    for rule in sides:
        state = "on by default" if rule.enabled_by_default else "off by default"
        lines.append(f"{rule.level}, {rule.confidence} confidence, {rule_kind(rule)} rule, {state}")
    for name, parts in sections(sides):
        lines += ["", heading(name), *_bodies(parts, prose=name in _PROSE)]
    lines += ["", heading(REFERENCES), *_bodies(reference_texts(sides), prose=True)]
    for reference in references(sides):
        lines += _wrap(f"{reference.document}{reference.rest}", "  - ", "    ")
        if reference.url is not None:
            lines.append(f"    {reference.url}")
    return "\n".join(lines) + "\n"


def _bodies(parts: Sequence[Part], prose: bool) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield ""
        if part.side is not None:
            yield f"  {part.side}:"
        yield from _prose(part.body) if prose else _indented(part.body)


def rule_json(sides: Sequence[type[Rule]]) -> str:
    """The same page as data; a second side stands under 'source_side'."""
    first, *others = (_side_json(side) for side in sides)
    return _dump({**first, "source_side": others[0] if others else None})


def _side_json(rule: type[Rule]) -> dict[str, Any]:
    page = _rule(rule)
    page["sections"] = rule.sections()
    page["documents"] = {found.document: found.url for found in references((rule,)) if found.url}
    return page


def engine_page(code_or_name: str) -> str | None:
    """The page of a finding that the engine itself reports, or None for any other name."""
    for code, page in packaged_toml("tclint.report", "engine_pages.toml").items():
        if code_or_name.upper() == code or code_or_name.lower() == page["name"]:
            return f"{code} {page['name']}\n" + "\n".join(_wrap(page["text"], "")) + "\n"
    return None


def silence_text(rule: type[Rule], answer: Answer, path: str, line: int) -> str:
    """The answer as text: what the rule reports on the line, why it is silent, and what happens there."""
    where = f"{path}:{line}"
    lines: list[str] = []
    for finding in answer.findings:
        lines += wrapped(f"{rule.code} ({rule.name}) reports {where}: {finding.message}", WIDTH)
    for reason in answer.reasons if not answer.findings else ():
        lines += wrapped(f"{rule.code} ({rule.name}) is silent about {where}: {reason}.", WIDTH)
    if not lines:
        lines += wrapped(f"{rule.code} ({rule.name}) found nothing on {where} that it asks about.", WIDTH)
        if silent_on := rule.sections().get(_SILENT_ON):
            lines += ["", f"{_SILENT_ON}:", *_prose(silent_on)]
    if answer.happens:
        started = os.path.relpath(answer.root)
        head = "What the program does there" + (f", started from {started}" if started != path else "")
        more = len(answer.happens) - _MOST_EVENTS
        shown = [*answer.happens[:_MOST_EVENTS], *([f"and {more} more"] if more > 0 else ())]
        lines += ["", f"{head}:", *(part for item in shown for part in wrapped(item, WIDTH, "  ", "    "))]
    else:
        lines += ["", *wrapped(_NOT_RUN, WIDTH)]
    return "\n".join(map(printable, lines)) + "\n"


_MOST_EVENTS = 12
_SILENT_ON = "When it does not apply"
_NOT_RUN = (
    "Nothing that rules ask about happens on this line: it is no call, or no way that tclint could follow "
    "through the program leads there."
)


def gpus_text(gpus: Sequence[Gpu], verbose: bool = False) -> str:
    """A row per GPU with the held-out error of every calibration; -v adds where each comes from."""
    groups = sorted({_column(key) for gpu in gpus for key in gpu.calibrations})
    header = ("GPU", "sm", *groups)
    rows = []
    for gpu in gpus:
        cells: dict[str, list[Calibration]] = {group: [] for group in groups}
        for key, calibration in gpu.calibrations.items():
            cells[_column(key)].append(calibration)
        major, minor = gpu.compute_capability
        rows.append((gpu.id, f"{major}.{minor}", *(_errors(cells[group]) for group in groups)))
    lines = list(table(header, rows, indent="", header_rows=2))
    lines += ["", *_wrap(_GPUS_LEGEND, "")]
    if verbose:
        for gpu in gpus:
            lines += ["", *_gpu_details(gpu)]
    return "\n".join(lines) + "\n"


def _column(key: tuple[str, str]) -> str:
    # Memory-bound kernels are calibrated one operation at a time: too many for a column each.
    kind, precision = key
    if kind == "traffic":
        return kind
    single = precision.removesuffix("_batched")
    return f"{kind} {precision}" if single == precision else f"bmm {single}"


def _errors(calibrations: Sequence[Calibration]) -> str:
    if not calibrations:
        return "-"
    errors = [calibration.held_out_mean_percent for calibration in calibrations]
    low, high = f"{min(errors):.1f}", f"{max(errors):.1f}"
    inherited = any(calibration.inherited_from is not None for calibration in calibrations)
    return (low if low == high else f"{low}-{high}") + ("*" if inherited else "")


_GPUS_LEGEND = (
    "Mean error in percent of predicted kernel times, on measured shapes that the calibration did not see; "
    "*: constants and error are (for traffic: some are) those of another GPU; -: none. "
    "half: fp16 and bf16; traffic: memory-bound kernels, from the best operation to the worst. "
    "-v shows aliases, peaks and what each calibration was fitted on."
)


def _gpu_details(gpu: Gpu) -> Iterator[str]:
    peaks = ", ".join(f"{name} {rate:g}" for name, rate in gpu.peak_tflops.items())
    yield f"{gpu.id}: {gpu.name}"
    if gpu.aliases:
        yield from _item(f"also called {', '.join(gpu.aliases)}")
    yield from _item(
        f"{gpu.sm_count} SMs, {gpu.boost_mhz:g} MHz, {gpu.dram_gib:g} GiB at {gpu.dram_gb_per_s:g} GB/s"
    )
    yield from _item(f"peak TFLOP/s: {peaks}")
    for (kind, precision), calibration in sorted(gpu.calibrations.items()):
        origin = f", inherited from {calibration.inherited_from}" if calibration.inherited_from else ""
        yield from _item(
            f"{kind} {precision}: {percent_text(calibration.held_out_mean_percent)} mean, "
            f"{percent_text(calibration.held_out_median_percent)} median error held out, "
            f"n = {calibration.n}, {calibration.fitted_on}, {calibration.date}{origin}"
        )
    for factor in gpu.factors:
        yield from _item(f"your calibration: {factor.text}, {factor.shapes} shapes, {factor.fitted_on}")


def _item(text: str) -> list[str]:
    return _wrap(text, "  ", "    ")


def gpus_json(gpus: Sequence[Gpu]) -> str:
    """`{"gpus": [...]}` with every calibration and its held-out error."""
    return _dump({"gpus": [_gpu(gpu) for gpu in gpus]})


_GPU_FIELDS = (
    "id", "name", "aliases", "generation", "compute_capability", "sm_count", "boost_mhz", "peak_tflops",
    "dram_gb_per_s", "dram_gib", "l2_mib", "source",
)  # fmt: skip


def _gpu(gpu: Gpu) -> dict[str, Any]:
    listed = picked(gpu, *_GPU_FIELDS)
    calibrations = [asdict(calibration) for _, calibration in sorted(gpu.calibrations.items())]
    for calibration in calibrations:
        # Constants mean something to the cost model alone.
        del calibration["constants"], calibration["held_out_by_size_percent"]
    return {**listed, "calibrations": calibrations, "factors": list(map(asdict, gpu.factors))}


def _rule(rule: type[Rule]) -> dict[str, Any]:
    return {
        **picked(rule, "code", "name", "level", "confidence"),
        "kind": rule_kind(rule),
        "enabled_by_default": rule.enabled_by_default,
        "summary": rule.summary(),
        "sources": list(rule.sources),
    }


def rule_kind(rule: type[Rule]) -> str:
    """'graph' for traced models, 'source' for what is only read."""
    return "graph" if issubclass(rule, GraphRule) else "source"


def _prose(text: str) -> Iterator[str]:
    """Paragraphs wrapped for the terminal; what is indented stays as it is."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", textwrap.dedent(text).strip("\n"))):
        if number:
            yield ""
        if re.search(r"^(\s|[-*] )", paragraph, re.MULTILINE):
            yield from _indented(paragraph)
        else:
            yield from _wrap(" ".join(paragraph.split()), "  ")


def _wrap(text: str, indent: str, hanging: str | None = None) -> list[str]:
    return wrapped(text, WIDTH, indent, hanging)


def _indented(text: str, indent: str = "  ") -> Iterator[str]:
    for line in textwrap.dedent(text).splitlines():
        yield (indent + line).rstrip()


def _dump(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, allow_nan=False, default=str) + "\n"


DOCUMENTS = "documents.toml"


@dataclass(frozen=True, slots=True)
class Part:
    """The text of a section."""

    side: str | None
    """The side that it is about; None: the rule's only one, or both."""
    body: str


@dataclass(frozen=True, slots=True)
class Reference:
    """One of a rule's sources."""

    document: str
    rest: str
    """What follows the document's name: ', section: claim'."""
    url: str | None


def side_name(rule: type[Rule]) -> str:
    """What a class looks at, as a heading of its part of a section."""
    return "In a traced model" if issubclass(rule, GraphRule) else "In training code"


def summaries(sides: Sequence[type[Rule]]) -> list[Part]:
    """The first line of the page, or one per side where they differ."""
    return _parts(sides, [side.summary() for side in sides])


def sections(sides: Sequence[type[Rule]]) -> Iterator[tuple[str, list[Part]]]:
    """The sections of a page in order, without the references; a text that both sides share stands once."""
    texts = [side.sections() for side in sides]
    for name in DOC_SECTIONS:
        parts = _parts(sides, [text.get(name, "") for text in texts])
        if parts:
            yield name, parts


def reference_texts(sides: Sequence[type[Rule]]) -> list[Part]:
    """What docstrings of others' rules say under 'References', which ours no longer have."""
    return _parts(sides, [side.sections().get(REFERENCES, "") for side in sides])


def references(sides: Sequence[type[Rule]]) -> list[Reference]:
    """The sources of all sides, each once."""
    return [
        _reference(source) for source in dict.fromkeys(source for side in sides for source in side.sources)
    ]


def _parts(sides: Sequence[type[Rule]], texts: Sequence[str]) -> list[Part]:
    if len({" ".join(text.split()) for text in texts}) == 1:
        return [Part(None, texts[0])] if texts[0].strip() else []
    return [Part(side_name(side), text) for side, text in zip(sides, texts, strict=True) if text.strip()]


def _reference(source: str) -> Reference:
    document = re.split(r"[,:]\s", source, maxsplit=1)[0]
    return Reference(document, source[len(document) :], documents().get(document))


@lru_cache(maxsize=1)
def documents() -> dict[str, str]:
    """The addresses of documents by their names, as tclint's rules know them."""
    return packaged_toml(PACKAGE, DOCUMENTS)
