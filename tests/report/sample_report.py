"""Parts of reports made by hand: no model is traced and no rule runs."""

from __future__ import annotations

from tclint.core.finding import Edit, Effect, Finding, Fix, GpuEffect, Location, Related
from tclint.engine.report import Entry, Metrics
from tclint.graph.lowering.work import Gap
from tclint.graph.ops import Assumption, Site

MODEL = """\
import torch.nn as nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lm_head = nn.Linear(768, 50257, bias=False)
        self.stem = nn.Conv2d(3, 30, 3, padding=1)
"""

TRAIN = """\
with torch.autocast("cuda"):
    loss = model(batch)
    loss.backward()
"""


def gpu_effect(gain_us: float, step_us: float, /, **changes: object) -> GpuEffect:
    values: dict[str, object] = {
        "cost_us": abs(2 * gain_us),
        "gain_us": gain_us,
        "gain_percent": 100 * gain_us / step_us,
        "uncertainty_percent": 8.0,
    }
    return GpuEffect(**{**values, **changes})  # type: ignore[arg-type]


VOCABULARY = Finding(
    code="DIM003",
    name="vocab-misaligned",
    level="warning",
    confidence="high",
    message="The vocabulary of 50257 is not a multiple of 8, so fp16 loads of lm_head are narrow.",
    location=Location("model.py", 7, 24, 7, 57, module_path="lm_head"),
    related=(Related(Location("lib/tied.py", 3), "the embedding that shares its weight"),),
    effect=Effect(
        per_gpu={
            "a100-sxm4-80gb": gpu_effect(4210.0, 42_100.0),
            "v100-sxm2-16gb": gpu_effect(-98.0, 98_000.0, calibrated=False),
        }
    ),
    evidence={"n": 50257, "padded": 50304},
    fix=Fix("Pad the vocabulary to 50304 and mask the extra logits."),
    target="model.py:LanguageModel",
)

STEM = Finding(
    code="DIM002",
    name="conv-misaligned",
    level="info",
    confidence="medium",
    message="30 output channels are not a multiple of 8.",
    location=Location("model.py", 8, module_path="stem"),
    effect=Effect(per_gpu={"a100-sxm4-80gb": gpu_effect(500.0, 42_100.0)}),
    target="model.py:LanguageModel",
)

BACKWARD = Finding(
    code="AMP006",
    name="backward-under-autocast",
    level="error",
    confidence="high",
    message="backward() runs inside autocast.",
    location=Location("train.py", 3, 5, 3, 20),
    effect=Effect(unknown="the source pass does not know the model's shapes"),
    fix=Fix("Move it out of the block.", "unsafe", (Edit("train.py", (3, 1), (3, 5), ""),)),
)

BELOW = Finding(
    code="DIM001",
    name="linear-misaligned",
    level="warning",
    confidence="high",
    message="100 is not a multiple of 8.",
    location=Location("model.py", 8),
    effect=Effect(per_gpu={"a100-sxm4-80gb": gpu_effect(4.0, 42_100.0)}),
)


def metrics(gpu: str, step_time_us: float, **changes: object) -> Metrics:
    values: dict[str, object] = {
        "gpu": gpu,
        "step_time_us": step_time_us,
        "forward_time_us": step_time_us / 3,
        "backward_time_us": step_time_us / 2,
        "optimizer_time_us": step_time_us / 6,
        "readiness_percent": 61.25,
        "tensor_core_time_percent": 80.4,
        "amdahl_ceiling": 5.1,
        "uncertainty_percent": 8.0,
        "calibrated": True,
    }
    return Metrics(**{**values, **changes})  # type: ignore[arg-type]


ENTRY = Entry(
    target="model.py:LanguageModel",
    model="LanguageModel",
    mode="train",
    precision="fp16",
    parameters=124_439_808,
    flops=291_648_307_200,
    op_count=412,
    metrics={
        "a100-sxm4-80gb": metrics("a100-sxm4-80gb", 42_100.0),
        "v100-sxm2-16gb": metrics("v100-sxm2-16gb", 98_000.0, calibrated=False, amdahl_ceiling=float("inf")),
    },
    assumptions=(
        Assumption("batch 8, since the target gives no input", Site("model.py", 4)),
        Assumption("tokens are spread evenly over experts", None, 12),
    ),
    not_analysed=(Gap("fft_rfft", "no formula", (3, 9)),),
    seconds={"build": 0.51, "trace": 0.12},
    inputs=(("tokens", "int64", (8, 1024)),),
)
