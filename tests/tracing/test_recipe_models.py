"""Models of configuration files: sizes from the table, adapters, few bits, the places of layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tclint
from tclint.graph.lowering.step import forward_flops
from tclint.graph.ops import Graph
from tclint.tracing.patches.modules import construct_site_of, remembered_construction
from tclint.tracing.recipes.adapters import adapt, quantize, train_whole
from tclint.tracing.recipes.build import at_line, fuse_loss, known_model
from tclint.tracing.values.sites import SiteFinder

WIDTH = 256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down_proj(torch.relu(self.up_proj(x)))


class Model(nn.Module):
    """Two blocks and a head, as models of transformers name them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(512, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.lm_head = nn.Linear(WIDTH, 512, bias=False)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def traced(change: Callable[[Model], object]) -> Graph:
    def build() -> Model:
        model = Model()
        change(model)
        return model

    return tclint.trace(build, inputs=torch.zeros(4, 128, dtype=torch.int64))


def with_adapters(model: Model) -> list[str]:
    return adapt(model, 8, "all", 0.0, torch.float32)


def test_adapters_are_all_that_is_trained() -> None:
    trained = [item for item in traced(with_adapters).parameters if item.trainable]
    assert {item.name.rpartition(".")[0].rpartition(".")[2] for item in trained} == {"lora_A", "lora_B"}
    assert sum(item.numel for item in trained) == 2 * 2 * 8 * 3 * WIDTH


def test_frozen_layers_have_no_gradient_of_weights() -> None:
    plain, adapted = traced(lambda _: None), traced(with_adapters)
    backward = {
        name: tclint.estimate(graph, gpu="a100", precision="bf16", mode="train").flops - forward_flops(graph)
        for name, graph in (("plain", plain), ("adapted", adapted))
    }
    # dgrad and wgrad before, dgrad alone now, but for the small products.
    assert backward["adapted"] < 0.75 * backward["plain"]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("all-linear", ["down_proj", "up_proj"]),
        ("up_proj", ["up_proj"]),
        (["layers.0.*"], ["down_proj", "up_proj"]),
        ("up_proj,down_proj", ["down_proj", "up_proj"]),
        (["q_proj"], []),
    ],
)
def test_targets_of_adapters(targets: str | list[str], expected: list[str]) -> None:
    assert adapt(Model(), 4, targets, 0.0, torch.float32) == expected


def test_layers_that_are_trained_whole() -> None:
    model = Model()
    adapt(model, 8, ["up_proj"], 0.0, torch.float32)
    assert train_whole(model, ["lm_head", "none_such"]) == ["lm_head"]
    head = {name: item.requires_grad for name, item in model.named_parameters() if "lm_head" in name}
    assert head == {"lm_head.weight": True, "lm_head.original_weight": False}


@pytest.mark.parametrize(("bits", "bytes_of_weight"), [(4, 0.5), (8, 1.0)])
def test_weights_in_few_bits(bits: int, bytes_of_weight: float) -> None:
    def change(model: Model) -> int:
        return quantize(model, bits, torch.bfloat16, double_quantized=True)

    weights = 2 * 2 * 2 * WIDTH * WIDTH
    assert change(Model()) == weights
    graph = traced(change)
    stored = [item for item in graph.parameters if item.dtype == "uint8" and not item.is_buffer]
    assert sum(item.bytes for item in stored) == weights * bytes_of_weight
    assert graph.parameter_count == traced(lambda _: None).parameter_count
    assert Graph.from_json(graph.to_json()).parameter_count == graph.parameter_count
    # The products are those of the whole weights, and the head stays as it is.
    assert forward_flops(graph) == pytest.approx(forward_flops(traced(lambda _: None)), rel=0.01)


class Causal(Model):
    """Ends in a loss over all logits, of 8192 words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lm_head = nn.Embedding(8192, WIDTH), nn.Linear(WIDTH, 8192, bias=False)

    @property
    def base_model(self) -> nn.Module:
        return Decoder(self)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        logits = self.lm_head(self.base_model(input_ids)[0]).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Decoder(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.embed, self.layers = model.embed, model.layers

    def forward(self, input_ids: Tensor) -> tuple[Tensor]:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return (x,)


@pytest.mark.parametrize("tokens", [1000, 2048])
def test_loss_without_all_logits(tokens: int) -> None:
    ids = torch.zeros(4, tokens, dtype=torch.int64)

    def priced(*, fused: bool) -> tclint.Estimate:
        def build() -> Causal:
            model = Causal()
            if fused:
                fuse_loss(model)
            return model

        graph = tclint.trace(build, kwargs={"input_ids": ids, "labels": ids})
        return tclint.estimate(graph, gpu="a100", precision="bf16", mode="train")

    plain, fused = priced(fused=False), priced(fused=True)
    logits = 4 * tokens * 8192 * 4
    assert plain.memory.activations_bytes > logits
    assert fused.memory.activations_bytes < logits // 2
    # The head's product runs once more, and nothing is left out.
    assert plain.flops < fused.flops < 1.34 * plain.flops


def test_expanded_weights_are_not_kept() -> None:
    def memory(bits: int | None) -> int:
        def change(model: Model) -> None:
            model.to(torch.bfloat16)
            if bits is not None:
                quantize(model, bits, torch.bfloat16, double_quantized=True)
            adapt(model, 8, "all", 0.0, torch.bfloat16)

        found = tclint.estimate(traced(change), gpu="a100", precision="pure-bf16", mode="train").memory
        return found.activations_bytes

    assert memory(4) == memory(None)


def test_place_in_a_file(tmp_path: Path) -> None:
    file = str(tmp_path / "recipe.yaml")

    with remembered_construction(SiteFinder(files=[file])):
        layer = at_line(file, 7, partial(nn.Linear, 8, 8))
    site = construct_site_of(layer).site
    assert site is not None
    assert (site.path, site.line) == (file, 7)


@pytest.mark.parametrize(
    ("name", "width", "model_type"),
    [
        ("NousResearch/Llama-2-7b-hf", 4096, "llama"),
        ("meta-llama/Llama-2-70b-chat-hf", 8192, "llama"),
        ("unsloth/llama-3-8b-Instruct-bnb-4bit", 4096, "llama"),
        ("llama3 8B", 4096, "llama"),
        ("torchtune.models.llama3_1.lora_llama3_1_8b", 4096, "llama"),
        ("Qwen/Qwen2.5-32B-Instruct", 5120, "qwen2"),
        ("google/gemma-2-9b-it", 3584, "gemma2"),
        ("EleutherAI/pythia-1.4b-deduped", 2048, "gpt_neox"),
    ],
)
def test_known_sizes(name: str, width: int, model_type: str) -> None:
    found = known_model(name)
    assert found is not None
    assert (found.config["hidden_size"], found.model_type) == (width, model_type)
    assert found.source.startswith("https://")


@pytest.mark.parametrize(
    "name", ["a/llama-2-7b-with-more-words", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.2-11B-Vision", "llama"]
)
def test_unknown_sizes(name: str) -> None:
    assert known_model(name) is None
