"""Numbers as people read them: three significant digits and a unit, never more than is known."""

from __future__ import annotations

import math


def time_text(time_us: float) -> str:
    """Microseconds as '0.85 us', '812 us', '4.21 ms', '1.3 s'."""
    return _scaled(time_us, ((1e6, "s"), (1e3, "ms"), (1.0, "us")))


def bytes_text(size: float) -> str:
    """'12.5 GiB', '640 MiB'."""
    return _scaled(size, ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1.0, "B")))


def flops_text(flops: float) -> str:
    """'291 GFLOP'."""
    scales = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1.0, "FLOP"))
    return _scaled(flops, scales)


def count(number: int) -> str:
    """A large number for messages, rounded: '124 M', '61.7 k', '512'."""
    return str(number) if number < 1000 else _scaled(number, ((1e9, "G"), (1e6, "M"), (1e3, "k")))


def percent_text(value: float) -> str:
    """'4.1 %', '12 %', '0.03 %'; less than half a hundredth is 0."""
    if not math.isfinite(value):
        return "unknown"
    return f"{significant(value, 2)} %" if abs(value) >= 0.005 else "0 %"


def uncertainty_text(percent: float) -> str:
    """'+-8 %': its own digits mean nothing."""
    return f"+-{math.ceil(percent)} %" if math.isfinite(percent) else "+-unknown"


def hours_text(gpu_hours: float, price: float | None) -> str:
    """'15.3 GPU-hours (38.20)': the price has no currency, since nobody named one."""
    text = f"{significant(gpu_hours)} GPU-hours"
    return text if price is None else f"{text} ({price:.2f})"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """'1 file', '2 files'."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def significant(value: float, digits: int = 3) -> str:
    """`value` to that many significant digits, without an exponent; whole numbers are kept whole."""
    if value == 0:
        return "0"
    # Rounded first, since 9.996 has one digit more before the point than it seems to.
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{value:.{min(max(decimals, 0), 6)}f}"


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(value):
        return "unknown"
    for scale, unit in scales:
        # 0.9995 of a unit would print as 1000 of the smaller one.
        if abs(value) >= 0.9995 * scale:
            return f"{significant(value / scale)} {unit}"
    scale, unit = scales[-1]
    return f"{significant(value / scale)} {unit}"
