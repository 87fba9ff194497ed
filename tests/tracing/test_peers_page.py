"""The page that compares tclint with other tools: what its figures are."""

from __future__ import annotations

from pathlib import Path

import pytest


def _row(model: str, tool: str, seconds: float, mib: float, flops: int, result: str = "ok") -> dict[str, str]:
    return {
        "model": model,
        "tool": tool,
        "result": result,
        "seconds": str(seconds),
        "cpu_s": str(seconds),
        "peak_mib": str(mib),
        "over_model_mib": "0.5",
        "flops": str(flops),
    }


def test_ratios_are_medians_over_models_and_losses_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from peers_table import page

    rows = [
        *(
            _row("a", "tclint", seconds, 2.0, 100) for seconds in (0.1, 0.2, 0.9)
        ),  # repeats: the median counts
        _row("b", "tclint", 0.4, 2.0, 100),
        _row("a", "flop_counter on meta", 0.8, 1.0, 100),
        _row("b", "flop_counter on meta", 0.2, 3.0, 50),
        _row("a", "other", 1.0, 9.0, 100),
        _row("b", "other", 0.0, 0.0, 0, "RuntimeError: no"),
    ]
    text = page(rows, {"torch": "2.13.0"})
    meta = next(line for line in text.splitlines() if line.startswith("| flop_counter on meta | 2 of 2"))
    assert "| 2.2 x | 1 of 2 |" in meta  # 4 times and half as long
    assert meta.endswith("| 1 of 2 |")  # memory
    assert "| tclint | 2 of 2 | 1 | 1 | +50.00 % / +100.0 % |" in text
    assert "- than flop_counter on meta: 1 models, by 0.20 CPU s (median), most in `b`" in text
    assert "- other, `b`: RuntimeError: no" in text
