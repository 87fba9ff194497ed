"""Predicted speed-ups of three networks on an A100, beside those that SURF published.

    python benchmarks/surf.py

SURF's wiki on the A100 (TensorFlow 2.6, images per second in training; batch and layout not stated): ResNet50
FP32 455.9, TF32 750.6, mixed 1087.6; VGG19 212.7, 550.3, 1099.8; DenseNet121 391.9, 591.5, 876.2. What is
compared is how the three rank, since neither batch, layout nor framework are the same. Needs torch, and
traces the fixtures; no GPU.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tclint.config.settings import LayoutName, Precision
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario

BATCHES = (64, 128)
GPU = "a100-sxm4-40gb"
SURF: Mapping[str, Mapping[Precision, float]] = {
    "resnet50": {"fp32": 455.9, "tf32": 750.6, "fp16": 1087.6},
    "vgg19": {"fp32": 212.7, "tf32": 550.3, "fp16": 1099.8},
    "densenet121": {"fp32": 391.9, "tf32": 591.5, "fp16": 876.2},
}
"""Images per second by network and precision."""
FASTER: tuple[Precision, ...] = ("tf32", "fp16")
LAYOUTS: tuple[LayoutName, ...] = ("as_traced", "channels_last")
FIXTURES = Path(__file__).parents[1] / "fixtures"


def traced(name: str, batch: int) -> Any:
    """The graph of a fixture at a batch."""
    import tclint

    spec = importlib.util.spec_from_file_location(name, FIXTURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return tclint.trace(module.build_model, module.example_inputs(batch=batch))


def step_times_us(graph: Any, layout: LayoutName = "as_traced") -> dict[Precision, float]:
    """Predicted training steps in the three precisions."""
    return {
        precision: estimate(graph, Scenario(GPU, precision, layout=layout)).step_time_us
        for precision in SURF["resnet50"]
    }


def published(precision: Precision) -> dict[str, float]:
    """Speed in that precision over fp32, by network."""
    return {name: speeds[precision] / speeds["fp32"] for name, speeds in SURF.items()}


def ranked(speedups: Mapping[str, float]) -> list[str]:
    """Names, the largest speed-up first."""
    return sorted(speedups, key=lambda name: -speedups[name])


def main() -> None:
    print("| batch | layout | precision | " + " | ".join(SURF) + " | ranked as published |")
    print("|---|---|---|" + "---|" * (len(SURF) + 1))
    for precision in FASTER:
        cells = " | ".join(f"{speedup:.2f}x" for speedup in published(precision).values())
        print(f"| published | | {precision} | {cells} | |")
    for batch in BATCHES:
        graphs = {name: traced(name, batch) for name in SURF}
        for layout in LAYOUTS:
            times = {name: step_times_us(graph, layout) for name, graph in graphs.items()}
            for precision in FASTER:
                speedups = {name: found["fp32"] / found[precision] for name, found in times.items()}
                cells = " | ".join(f"{speedup:.2f}x" for speedup in speedups.values())
                same = "yes" if ranked(speedups) == ranked(published(precision)) else "no"
                print(f"| {batch} | {layout} | {precision} | {cells} | {same} |")


if __name__ == "__main__":
    main()
