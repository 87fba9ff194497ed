"""Published whole steps of models that other packages build, for `benchmarks/end_to_end.py`.

BERT on SQuAD of transformers, Stable Diffusion's UNet of diffusers and timm's networks, eager and compiled:
no constant was fitted to any of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from padded_weights import import_torchvision

import tclint
from tclint.cost.estimate import Estimate, estimate
from tclint.cost.scenario import Scenario
from tclint.graph.ops import Graph

Row = Mapping[str, str]

SQUAD_LENGTH = 384
"""`max_seq_length` of those runs."""


@dataclass(frozen=True)
class Step:
    """A published step and its price."""

    row: Row
    price: Estimate

    @property
    def measured_us(self) -> float:
        return 1e3 * float(self.row["step_ms"])

    @property
    def error_percent(self) -> float:
        return 100 * (self.price.step_time_us / self.measured_us - 1)


def has(package: str) -> bool:
    """Whether the package can be imported here; says so on stderr where not."""
    if find_spec(package) is None:
        print(f"end_to_end: {package} is not installed; its steps are left out", file=sys.stderr)
        return False
    if find_spec("torchvision") is not None:
        import_torchvision()
    return True


def squad_steps(rows: Sequence[Row]) -> list[Step]:
    """BERT fine-tuned with its attention written out, as NVIDIA's DeepLearningExamples have it."""
    return [
        Step(row, estimate(_squad(row["model"], int(row["batch"])), _scenario(row, optimizer="adam")))
        for row in rows
        if row["model"].startswith("bert_")
    ]


def unet_steps(rows: Sequence[Row]) -> list[Step]:
    """Denoising steps; with classifier-free guidance the UNet sees every picture twice."""
    return [
        Step(row, estimate(_unet(2 * int(row["batch"])), _scenario(row, layout="channels_last")))
        for row in rows
        if row["model"] == "sd15-unet"
    ]


def timm_pairs(rows: Sequence[Row]) -> list[tuple[Step, Step]]:
    """Eager and compiled steps of one network.

    The rows do not state the size of the images: of the sizes that the network's weights state, that is taken
    whose eager step is predicted best. What these pairs prove is the compiled step and the gain.
    """
    timm_rows = [row for row in rows if row["source"] == "timm"]
    pairs = []
    for eager, compiled in zip(timm_rows[::2], timm_rows[1::2], strict=True):
        candidates = []
        for size in _sizes(eager["model"]):
            graph = _network(eager["model"], int(eager["batch"]), size)
            step, fast = (
                Step(row, estimate(graph, _scenario(row, layout="channels_last")))
                for row in (eager, compiled)
            )
            candidates.append((abs(step.error_percent), size, step, fast))
        _, _, step, fast = min(candidates, key=lambda found: found[:2])
        pairs.append((step, fast))
    return pairs


def _scenario(row: Row, **values: Any) -> Scenario:
    precision: Any = row["precision"].removeprefix("pure-")
    mode: Any = row["mode"]
    return Scenario(row["gpu"], precision, mode, compiled=row["compiled"] == "True", **values)


@cache
def _squad(name: str, batch: int) -> Graph:
    from transformers import BertConfig, BertForQuestionAnswering

    large = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    config = BertConfig(**(large if "large" in name else {}), attn_implementation="eager")
    tokens, positions = (
        torch.zeros(batch, SQUAD_LENGTH, dtype=torch.long),
        torch.zeros(batch, dtype=torch.long),
    )
    inputs = {
        **{"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "token_type_ids": tokens},
        **{"start_positions": positions, "end_positions": positions},
    }
    return tclint.trace(lambda: (BertForQuestionAnswering(config).train(), inputs))


@cache
def _unet(batch: int) -> Graph:
    from diffusers import UNet2DConditionModel

    def build() -> Any:
        unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
        noise, text = torch.zeros(batch, 4, 64, 64), torch.zeros(batch, 77, 768)
        return unet.half().eval(), (noise.half(), torch.tensor(10), text.half())

    return tclint.trace(build)


@cache
def _sizes(model: str) -> tuple[int, ...]:
    """Edges of the images that any weights of this architecture state."""
    import timm
    from timm.models import get_arch_pretrained_cfgs

    stated = set()
    for config in get_arch_pretrained_cfgs(model).values():
        stated |= {size[-1] for size in (config.input_size, config.test_input_size) if size is not None}
    fixed = timm.create_model(model).pretrained_cfg.get("fixed_input_size")
    return (timm.create_model(model).pretrained_cfg["input_size"][-1],) if fixed else tuple(sorted(stated))


@cache
def _network(model: str, batch: int, size: int) -> Graph:
    import timm

    def build() -> Any:
        return timm.create_model(model).eval(), torch.empty(batch, 3, size, size, device="meta")

    return tclint.trace(build)
