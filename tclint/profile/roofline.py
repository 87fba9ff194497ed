"""The roofline of a profile, drawn in SVG: measured rates of arithmetic over arithmetic intensity."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tclint.core.document import html_text
from tclint.core.errors import UsageError
from tclint.core.units import significant, time_text
from tclint.cost.gpu import Gpu, load_gpu
from tclint.profile.predicted import PricedOperator, priced_operators
from tclint.profile.profile import RankProfile
from tclint.profile.works import sizes_text

POINTS_AT_MOST = 400
_WIDTH, _HEIGHT, _MARGIN = 900.0, 420.0, 50.0


def roofline(profile: RankProfile) -> str:
    """Markup of the drawing; '' where the GPU's own rates are not known, or no operator's work is."""
    try:
        gpu = load_gpu(profile.summary.gpu)
    except UsageError:
        return ""
    known = (one for one in priced_operators(profile.trace, gpu) if one.work.flops)
    points = sorted(known, key=lambda one: -one.time_us * one.calls)[:POINTS_AT_MOST]
    if not points:
        return ""
    return (
        "<p>One dot per operator and sizes; its area grows with the time of all its calls. Bytes are those "
        f"that it has to move at least. Lines: datasheet rates of the GPU.</p>\n{_svg(points, gpu)}"
    )


def _svg(points: Sequence[PricedOperator], gpu: Gpu) -> str:
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
            f'cy="{y(one.teraflops_per_s):.1f}" r="{radius:.1f}"><title>{html_text(told)}</title></circle>'
        )
    return "".join(parts) + '</svg><p><span class="tensor">●</span> on Tensor Cores, others on CUDA cores</p>'


def _power(exponent: int) -> str:
    return f"{10.0**exponent:g}"
