"""A profile as one HTML page, without network and scripts, with the roofline of measured times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from tclint.core.errors import UsageError
from tclint.core.text import printable
from tclint.core.units import percent_text, significant, time_text
from tclint.cost.gpu import Gpu, load_gpu
from tclint.profile import ranks
from tclint.profile.beside import Beside
from tclint.profile.beside_text import HEADER, beside_head, costs_text, op_rows
from tclint.profile.predicted import Compared, compared
from tclint.profile.profile import RankProfile
from tclint.profile.sizes import sizes_text
from tclint.profile.tensor_cores import TITLES
from tclint.profile.text import head, kind_rows, notes, operator_name, use_rows

SHOWN_OPERATORS = 200
POINTS_AT_MOST = 400

_STYLE = """
:root { color-scheme: light dark; }
body {
  margin: 0 auto; padding: 1rem; max-width: 72rem; overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, sans-serif;
}
table { border-collapse: collapse; margin: .5rem 0; }
td, th {
  padding: .15rem .7rem .15rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #8884;
}
td.number, th.number { text-align: right; white-space: nowrap; }
td.part { padding-left: 1.2rem; }
svg { width: 100%; max-width: 60rem; height: auto; }
svg text { fill: currentColor; font-size: 12px; }
.roof { stroke: currentColor; stroke-dasharray: 5 4; fill: none; }
.tensor { fill: #0a7d55; color: #0a7d55; }
.cuda { fill: #d9730d; }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_WIDTH, _HEIGHT, _MARGIN = 900.0, 420.0, 50.0


def render(profiles: Sequence[RankProfile], besides: Sequence[Beside] = ()) -> str:
    """Every trace in full, one section each; then the model that they are of."""
    parts = [f"<p>{_text(ranks.spread(profiles))}</p>"] if len(profiles) > 1 else []
    parts += [part for profile in profiles for part in _section(profile)]
    if besides:
        parts += _beside(besides)
    sections = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>tclint profile</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{sections}\n</body>\n</html>\n"
    )


def _section(profile: RankProfile) -> Iterator[str]:
    summary = profile.summary
    title, *rest = head(summary)
    yield f"<h1>{_text(title)}</h1>"
    yield from (f"<p>{_text(line)}</p>" for line in rest)
    if profile.observations:
        yield "<h2>What stands out</h2><ul>"
        for one in profile.observations:
            took = f"{time_text(one.time_us)}, {percent_text(one.percent)}"
            rules = f" ({', '.join(one.rules)})" if one.rules else ""
            yield f"<li><b>{_text(took)}</b>: {_text(one.text + rules)}</li>"
        yield "</ul>"
    yield "<h2>Use of Tensor Cores</h2>"
    yield from _table(("use", "time", "share", "kernels"), use_rows(summary))
    yield from _roofline(profile)
    yield "<h2>Kinds</h2>"
    yield from _table(("kind", "time", "share", "kernels"), kind_rows(summary))
    yield "<h2>Longest operators</h2>"
    rows = [
        (
            operator_name(row),
            time_text(row.time_us),
            percent_text(summary.percent(row.time_us)),
            str(row.calls),
            "" if row.use == "none" else TITLES[row.use] + (f": {row.reason}" if row.reason else ""),
            row.line,
        )
        for row in summary.operators[:SHOWN_OPERATORS]
    ]
    yield from _table(("operator", "time", "share", "calls", "Tensor Cores", "function"), rows)
    yield from (f"<p>{_text(note)}</p>" for note in notes(summary))


def _beside(besides: Sequence[Beside]) -> Iterator[str]:
    beside = besides[0]
    yield "<h1>Beside the model</h1>"
    if len(besides) > 1:
        yield from _table(ranks.BESIDE_HEADER, ranks.beside_rows(besides))
    yield from (f"<p>{_text(line)}</p>" for line in beside_head(beside))
    yield from _table(HEADER, op_rows(beside.rows))
    if beside.report.findings:
        yield "<h2>Findings</h2><ul>"
        for finding in beside.report.findings:
            place = f"{finding.location.path}:{finding.location.line}"
            told = f"{finding.code} {finding.message} {costs_text(beside, finding)}"
            yield f"<li><code>{_text(place)}</code> {_text(told)}</li>"
        yield "</ul>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    def cells(values: Sequence[str], tag: str) -> str:
        shown = []
        for index, value in enumerate(values):
            kind = ' class="number"' if 0 < index < 4 else ' class="part"' if value.startswith("  ") else ""
            shown.append(f"<{tag}{kind}>{_text(value.strip())}</{tag}>")
        return f"<tr>{''.join(shown)}</tr>"

    yield f"<table>{cells(header, 'th')}"
    yield from (cells(row, "td") for row in rows)
    yield "</table>"


def _roofline(profile: RankProfile) -> Iterator[str]:
    """Measured rate of arithmetic over arithmetic intensity, where the GPU's own rates are known."""
    try:
        gpu = load_gpu(profile.summary.gpu)
    except UsageError:
        return
    known = (one for one in compared(profile.trace, gpu) if one.work.flops)
    points = sorted(known, key=lambda one: -one.time_us * one.calls)[:POINTS_AT_MOST]
    if not points:
        return
    yield "<h2>Roofline of measured times</h2>"
    yield (
        "<p>One dot per operator and sizes; its area grows with the time of all its calls. Bytes are those "
        "that it has to move at least. Lines: datasheet rates of the GPU.</p>"
    )
    yield _svg(points, gpu)


def _svg(points: Sequence[Compared], gpu: Gpu) -> str:
    intensities = [one.price.arithmetic_intensity for one in points]
    roofs = {name: gpu.peak_tflops[name] for name in ("fp16", "tf32", "fp32") if name in gpu.peak_tflops}
    left = math.floor(math.log10(min(*intensities, 1.0)))
    right = math.ceil(math.log10(max(*intensities, 1000.0)))
    bottom = math.floor(math.log10(min(one.teraflops_per_s for one in points)))
    top = math.ceil(math.log10(max(roofs.values())))

    def x(intensity: float) -> float:
        return _MARGIN + (math.log10(intensity) - left) / (right - left) * (_WIDTH - 2 * _MARGIN)

    def y(rate: float) -> float:
        share = (math.log10(rate) - bottom) / max(top - bottom, 1)
        return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)

    parts = [f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="Roofline">']
    for exponent in range(left, right + 1):
        parts.append(f'<text x="{x(10.0**exponent):.1f}" y="{_HEIGHT - 30:.0f}">{_power(exponent)}</text>')
    for exponent in range(bottom, top + 1):
        parts.append(f'<text x="5" y="{y(10.0**exponent) + 4:.1f}">{_power(exponent)}</text>')
    parts.append(f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 8:.0f}">FLOP per byte</text>')
    parts.append('<text x="5" y="14">TFLOP/s</text>')
    for name, rate in roofs.items():
        balance = 1000.0 * rate / gpu.dram_gb_per_s
        parts.append(f'<path class="roof" d="M{x(balance):.1f} {y(rate):.1f}H{_WIDTH - _MARGIN:.0f}"/>')
        parts.append(f'<text x="{_WIDTH - _MARGIN - 110:.0f}" y="{y(rate) - 5:.1f}">{name} {rate:g}</text>')
    low = max(10.0**left, 10.0**bottom * 1000.0 / gpu.dram_gb_per_s)
    most = max(roofs.values())
    parts.append(
        f'<path class="roof" d="M{x(low):.1f} {y(low * gpu.dram_gb_per_s / 1000.0):.1f}'
        f'L{x(1000.0 * most / gpu.dram_gb_per_s):.1f} {y(most):.1f}"/>'
    )
    longest = max(one.time_us * one.calls for one in points)
    for one in points:
        radius = 2.5 + 10.0 * math.sqrt(one.time_us * one.calls / longest)
        kind = "tensor" if one.on_tensor_cores else "cuda"
        name = f"{one.operator.name} {sizes_text(one.operator)} {one.work.dtype}"
        told = (
            f"{name}: {one.calls} x {time_text(one.time_us)}, {significant(one.teraflops_per_s)} TFLOP/s, "
            f"predicted {time_text(one.price.time_us)}"
        )
        parts.append(
            f'<circle class="{kind}" fill-opacity="0.6" cx="{x(one.price.arithmetic_intensity):.1f}" '
            f'cy="{y(one.teraflops_per_s):.1f}" r="{radius:.1f}"><title>{_text(told)}</title></circle>'
        )
    return "".join(parts) + '</svg><p><span class="tensor">●</span> on Tensor Cores, others on CUDA cores</p>'


def _power(exponent: int) -> str:
    return f"{10.0**exponent:g}"


def _text(value: str) -> str:
    return escape(printable(value))
