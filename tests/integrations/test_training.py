"""Callbacks of training frameworks, with the real libraries: a report before the first step, the same run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tclint.core.errors import UsageError


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.libraries
def test_lightning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from tclint.integrations.lightning import TclintCallback

    class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, manual: bool = False) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 333), nn.Dropout(0.5), nn.Linear(333, 10))
            self.automatic_optimization = not manual
            self.calls = 0

        def training_step(self, batch: Any, index: int) -> Any:
            self.calls += 1
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    def run(*callbacks: Any, manual: bool = False) -> tuple[Net, Any]:
        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))
        model = Net(manual)
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", precision="bf16-mixed", callbacks=list(callbacks), logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=128, shuffle=True))
        return model, trainer.callback_metrics

    callback = TclintCallback(gpu=["h100"])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="tclint did not lint")
        warnings.filterwarnings("ignore", message=".*")
        linted, metrics = run(callback)
    said = capsys.readouterr().err
    assert said.count("Net: Net (train, bf16 autocast)") == 1, "before the first step, and once"
    assert callback.report is not None
    assert list(callback.report.entries[0].metrics) == ["h100-sxm5-80gb"]
    assert [shape for _, _, shape in callback.report.entries[0].inputs] == [(128, 64), (128,)]
    plain, expected = run()
    assert linted.calls == plain.calls == 2
    assert same(linted, plain)
    assert metrics == expected, "the traced step logged nothing"
    assert "log" not in vars(linted)
    with pytest.warns(UserWarning, match="tclint did not lint the first step of Net: it optimizes by itself"):
        run(TclintCallback(), manual=True)
    with pytest.raises(UsageError, match="There is no option 'gpuu'"):
        TclintCallback(gpuu="h100")


@pytest.mark.libraries
def test_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from tclint.integrations.transformers import TclintCallback

    config = transformers.GPT2Config(vocab_size=1001, n_embd=64, n_layer=1, n_head=2, n_positions=32)

    def run(*callbacks: Any) -> nn.Module:
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config)
        words = torch.randint(0, 1001, (8, 32), generator=torch.Generator().manual_seed(1))
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, use_cpu=True, bf16=True,
            report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        data = [{"input_ids": row, "labels": row} for row in words]
        transformers.Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks)).train()
        return model  # type: ignore[no-any-return]

    callback = TclintCallback(gpu=["a100"])
    linted = run(callback)
    said = capsys.readouterr().err
    assert said.count("GPT2LMHeadModel: GPT2LMHeadModel (train, bf16 autocast)") == 1
    assert "DIM003" in said
    assert callback.report is not None
    inputs = {name: shape for name, _, shape in callback.report.entries[0].inputs}
    assert inputs["input_ids"] == inputs["labels"] == (4, 32)
    assert same(linted, run()), "no batch was drawn, and dropout's random state was kept"
