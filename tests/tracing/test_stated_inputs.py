"""Inferred inputs follow what a model states of itself, and a language model in training gets its targets."""

from __future__ import annotations

import shlex
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import tclint


class GPT(nn.Module):
    """A language model that states its context in a configuration, as people write them."""

    def __init__(self, **stated: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(**stated)
        self.embed = nn.Embedding(64, 16)
        self.head = nn.Linear(16, 64)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
        logits = self.head(self.embed(idx))
        if targets is None:
            return self.head(self.embed(idx)[:, [-1]])
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _shapes(model: nn.Module) -> dict[str | None, tuple[int, ...]]:
    return {spec.input_name: spec.shape for spec in tclint.trace(model).inputs}


@pytest.mark.parametrize(
    ("stated", "length"),
    [
        ({"block_size": 1024}, 1024),
        ({"sequence_len": 2048}, 2048),
        ({"max_position_embeddings": 514}, 512),
        ({"max_position_embeddings": 131072}, 4096),
        ({"block_size": 77}, 77),
        ({"ctx": 300}, 300),
        ({}, 128),
    ],
)
def test_tokens_fill_the_context(stated: dict[str, int], length: int) -> None:
    assert _shapes(GPT(**stated).eval()) == {"idx": (8, length)}


def test_a_table_of_positions_states_the_length() -> None:
    model = GPT()
    model.position_embedding = nn.Embedding(200, 16)
    model.type_embedding = nn.Embedding(50, 16)
    assert _shapes(model.eval()) == {"idx": (8, 200)}


def test_a_model_that_trains_gets_its_targets_and_says_so() -> None:
    graph = tclint.trace(GPT(block_size=256))
    assert {spec.input_name: spec.shape for spec in graph.inputs} == {"idx": (8, 256), "targets": (8, 256)}
    assert any("targets = int64[8,256], to train on" in assumption.what for assumption in graph.assumptions)
    head = next(op for op in graph.ops if op.name == "linear")
    assert head.outputs[0].shape == (8, 256, 64)


def test_infer_mode_has_no_targets() -> None:
    report = tclint.check(GPT(block_size=256), tclint.Settings(mode="infer"))
    assert not any(
        "targets" in assumption for entry in report.entries for assumption in map(str, entry.assumptions)
    )


def test_targets_that_are_refused_are_left_out() -> None:
    class Other(GPT):
        def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
            if targets is not None:
                raise ValueError("a loss for distillation needs a teacher")
            return super().forward(idx)

    assert _shapes(Other(block_size=32)) == {"idx": (8, 32)}


def test_labels_of_a_classifier_are_not_tokens() -> None:
    class Classifier(GPT):
        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            assert labels is None
            return self.head(self.embed(input_ids).mean(1))

    class TinyForCausalLM(GPT):
        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            return GPT.forward(self, input_ids, labels)

    assert _shapes(Classifier(n_positions=64)) == {"input_ids": (8, 64)}
    assert _shapes(TinyForCausalLM(n_positions=64)) == {"input_ids": (8, 64), "labels": (8, 64)}


def test_where_generation_stops_is_no_length() -> None:
    assert _shapes(GPT(max_length=20, num_beams=1, n_positions=64).eval()) == {"idx": (8, 64)}
    assert _shapes(GPT(max_length=20).eval()) == {"idx": (8, 20)}


class UNet(nn.Module):
    """States its latents and the width of the text as the models of diffusers do."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(sample_size=32, in_channels=4, cross_attention_dim=48)
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.text = nn.ModuleDict({"key": nn.Linear(48, 8)})

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, encoder_hidden_states: torch.Tensor
    ) -> torch.Tensor:
        assert timestep.shape == sample.shape[:1]
        maps = self.conv(sample).flatten(2).transpose(1, 2)
        return functional.scaled_dot_product_attention(maps, *[self.text["key"](encoder_hidden_states)] * 2)


def test_latents_and_text_have_the_stated_sizes() -> None:
    assert _shapes(UNet()) == {
        "sample": (8, 4, 32, 32),
        "timestep": (8,),
        "encoder_hidden_states": (8, 77, 48),
    }


class Audio(nn.Module):
    def __init__(self, *layers: nn.Module, **stated: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        for name, value in stated.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Audio(nn.Conv1d(1, 8, 7)), (8, 1, 16000)),
        (Audio(nn.Conv1d(2, 8, 7), samplerate=44100), (8, 2, 44100)),
        (Audio(nn.Conv1d(2, 8, 7), samplerate=44100, segment=Fraction(39, 5)), (8, 2, 343980)),
        (Audio(nn.Conv1d(2, 8, 7), samplerate=44100, segment=1e9), (8, 2, 44100)),
        (Audio(nn.Conv1d(80, 8, 7), nn.ConvTranspose1d(8, 1, 16, 8)), (8, 80, 32)),
        (Audio(nn.Conv1d(80, 8, 7)), (8, 80, 1024)),
    ],
)
def test_signals(model: nn.Module, shape: tuple[int, ...]) -> None:
    assert _shapes(model) == {"x": shape}


def test_the_options_that_give_the_same_inputs_can_be_pasted() -> None:
    graph = tclint.trace(GPT(block_size=256))
    said = graph.assumptions[-1].what
    assert said.endswith("; to set others: --input 'idx=int64[8,256]' --input 'targets=int64[8,256]'")
    options = tuple(shlex.split(said.partition("others: ")[2])[1::2])
    report = tclint.check(GPT(block_size=256), tclint.Settings(inputs=options))
    assert not report.errors
    assert "to set others" not in str(report.entries[0].assumptions)
