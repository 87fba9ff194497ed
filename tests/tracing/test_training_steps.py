"""LightningModules: their training step in train mode, their forward in infer mode."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tclint
from tclint.config.settings import Settings
from tclint.tracing import trace_targets


class LightningModule(nn.Module):
    """As Lightning's, in what matters here."""

    def log(self, name: str, value: Any) -> None:
        assert value.dim() == 0

    def configure_optimizers(self) -> Any:
        raise AssertionError("nobody trains here")


class Classifier(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 10)
        self.example_input_array = torch.zeros(4, 3, 32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, labels = batch
        loss = functional.cross_entropy(self(images), labels)
        self.log("loss", loss)
        return loss


class ByKey(Classifier):
    def training_step(self, batch: Any) -> Tensor:
        return functional.cross_entropy(self(batch["image"]), batch["label"])


class Autoencoder(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(self.body(x)[:, :3], (1, 1, 1, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        return functional.mse_loss(self(x), x)


class Regression(Autoencoder):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        assert y.is_floating_point()
        return functional.mse_loss(self(x), y)


class NeedsTrainer(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        raise RuntimeError("not attached to a Trainer")


LOSSES = {
    Classifier: "cross_entropy_loss",
    ByKey: "cross_entropy_loss",
    Autoencoder: "mse_loss",
    Regression: "mse_loss",
}


@pytest.mark.parametrize("kind", LOSSES)
def test_its_training_step_is_traced(kind: type[Classifier]) -> None:
    model = kind()
    attributes = dict(vars(model))
    graph = tclint.trace(model)
    assert graph.ops[-1].name == LOSSES[kind]
    assert next(op.module_path for op in graph.ops if op.kind == "conv") == "body"
    assert graph.inputs[0].shape == (4, 3, 32, 32)
    assert any("training_step was traced, on batch = " in one.what for one in graph.assumptions)
    assert vars(model) == attributes


def test_the_batch_that_is_given() -> None:
    graph = tclint.trace(Classifier(), (torch.zeros(2, 3, 16, 16), torch.zeros(2, dtype=torch.int64)))
    assert [spec.shape for spec in graph.inputs] == [(2, 3, 16, 16), (2,)]
    assert graph.ops[-1].name == "cross_entropy_loss"
    alone = tclint.trace(Classifier(), torch.zeros(2, 3, 16, 16))
    assert [spec.shape for spec in alone.inputs] == [(2, 3, 16, 16), (2,)]


class Words(LightningModule):
    """Has no forward."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(100, 16), nn.Linear(16, 100)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        scores = self.head(self.words(batch["input_ids"]))
        return functional.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten())


@pytest.mark.parametrize(
    "texts",
    [
        (),
        ("batch['input_ids']=int64[8,128]", "batch['labels']=int64[8,128]"),
        ("input_ids=int64[8,128]", "labels=int64[8,128]"),
    ],
)
def test_a_step_without_a_forward_and_the_names_that_reports_print(texts: tuple[str, ...]) -> None:
    settings = Settings(inputs=texts, batch=8)
    (entry,) = tclint.check(Words, settings=settings).entries
    assert entry.inputs == (
        ("batch['input_ids']", "int64", (8, 128)),
        ("batch['labels']", "int64", (8, 128)),
    )


def test_inference_is_its_forward() -> None:
    (entry,) = tclint.check(Classifier(), tclint.Settings(mode="infer")).entries
    assert entry.graph is not None
    assert entry.graph.ops[-1].name == "linear"


def test_a_step_that_cannot_run_alone_is_told_and_the_forward_traced() -> None:
    graph = tclint.trace(NeedsTrainer())
    assert graph.ops[-1].name == "linear"
    (told,) = (one.what for one in graph.assumptions if "without the loss" in one.what)
    assert "The training_step of NeedsTrainer raised RuntimeError: not attached to a Trainer" in told


REAL = """
import torch
from torch import nn
from pytorch_lightning import LightningModule

class Lit(LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.head = nn.Linear(16, 10)
        self.example_input_array = torch.zeros(4, 16)

    def forward(self, x):
        return self.head(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
"""


def test_lightning_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pytorch_lightning")
    (tmp_path / "lit_model.py").write_text(REAL)
    monkeypatch.chdir(tmp_path)
    for mode, last in (("train", "cross_entropy_loss"), ("infer", "linear")):
        (result,) = trace_targets(["lit_model.py:Lit"], tclint.Settings(mode=mode))
        assert result.graph is not None, result.error
        assert result.graph.ops[-1].name == last
    monkeypatch.syspath_prepend(tmp_path)
    model = importlib.import_module("lit_model").Lit()
    assert tclint.trace(model).ops[-1].name == "cross_entropy_loss"
