"""Findings of a training script take their price from the model that it trains, linted beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from trained_net import AUTOCAST, MODEL, PLAIN, script

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.check import check
from tclint.engine.report import Report

pytest.importorskip("torch")


def linted(folder: Path, forward: str, batch: int, model: str = MODEL) -> Report:
    (folder / "net.py").write_text(model)
    train = folder / "train.py"
    train.write_text(script(batch=batch, forward=forward))
    return check([f"{folder / 'net.py'}:build_model", str(train)], Settings(gpus=("a100",)))


def of_code(report: Report, code: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.code == code]
    return finding


def test_float32_is_the_largest_finding_and_has_its_price(tmp_path: Path) -> None:
    report = linted(tmp_path, PLAIN, 4096)
    first, second = report.findings[:2]
    assert (first.code, second.code) == ("AMP016", "PRC001")
    assert {first.level, second.level} == {"warning"}
    assert report.exit_code == 1
    assert first.location.path.endswith("train.py")
    (metrics,) = report.entries[0].metrics.values()
    gain_us = metrics.step_time_us - metrics.step_time_us_by_precision["bf16"]
    assert first.effect.best_gain_us == pytest.approx(gain_us)
    # The model's own finding stands behind it, and is no second one.
    assert any(related.location.path.endswith("net.py") for related in first.related)
    assert report.entries[0].plan[0].code == "AMP016"


def test_without_the_model_it_has_no_price(tmp_path: Path) -> None:
    linted(tmp_path, PLAIN, 4096)
    finding = of_code(check([str(tmp_path / "train.py")], Settings(gpus=("a100",))), "AMP016")
    assert finding.level == "info"
    assert finding.effect.unknown is not None


def test_without_the_script_the_settings_say_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    target = f"{tmp_path / 'net.py'}:build_model"
    report = check([target], Settings(gpus=("a100",), precision="fp32", batch=4096))
    assert {"AMP016", "PRC001"} <= {finding.code for finding in report.findings}
    assert of_code(report, "AMP016").location.path.endswith("net.py")
    assert "AMP016" not in {finding.code for finding in check([target], Settings(gpus=("a100",))).findings}


def test_an_optimizer_has_the_price_of_its_parameters(tmp_path: Path) -> None:
    finding = of_code(linted(tmp_path, AUTOCAST, 512), "RUN012")
    assert (finding.effect.best_gain_percent or 0.0) > 0.0


def test_a_batch_that_costs_nothing_fails_no_run(tmp_path: Path) -> None:
    """A row more or less is contiguous in no matrix: by the model's price 100 is as good as 104."""
    beside = linted(tmp_path, AUTOCAST, 1100)
    alone = check([str(tmp_path / "train.py")], Settings(gpus=("a100",)))
    assert of_code(alone, "RUN009").level == "warning"
    assert "RUN009" not in {finding.code for finding in beside.findings if finding.level == "warning"}


def test_a_script_of_another_model_keeps_its_findings(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(MODEL.replace("Net", "Other"))
    linted(tmp_path, PLAIN, 4096)
    report = check(
        [f"{tmp_path / 'other.py'}:build_model", str(tmp_path / "train.py")], Settings(gpus=("a100",))
    )
    assert of_code(report, "AMP016").effect.unknown is not None


def test_what_an_optimizer_costs_is_its_own_step(tmp_path: Path) -> None:
    report = linted(tmp_path, AUTOCAST.replace("bfloat16", "float16"), 512)
    (effect,) = of_code(report, "RUN012").effect.per_gpu.values()
    (metrics,) = report.entries[0].metrics.values()
    assert metrics.step_time_us > effect.cost_us > effect.gain_us > 0.0


def test_an_optimizer_that_another_file_of_the_script_makes_has_a_price(tmp_path: Path) -> None:
    (tmp_path / "updates.py").write_text(
        "from torch.optim import AdamW\n\ndef updates(net):\n    return AdamW(net.parameters())\n"
    )
    (tmp_path / "net.py").write_text(MODEL)
    text = script(batch=512)
    text = text.replace("torch.optim.AdamW(model.parameters(), lr=1e-3)", "updates(model)")
    (tmp_path / "train.py").write_text(f"from updates import updates\n{text}")
    report = check([f"{tmp_path / 'net.py'}:build_model", str(tmp_path)], Settings(gpus=("a100",)))
    finding = of_code(report, "RUN012")
    assert finding.location.path.endswith("updates.py")
    assert (finding.effect.best_gain_percent or 0.0) > 0.0


LANGUAGE_MODEL = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, 256), nn.Linear(256, words, bias=False)

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def build_model():
    return Net(WORDS)
"""
RESIZED = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("gpt2")
tokenizer.add_special_tokens({"pad_token": "<pad>"})
model = AutoModelForCausalLM.from_pretrained("gpt2")
model.resize_token_embeddings(len(tokenizer))
Trainer(model, TrainingArguments("out", bf16=True, per_device_train_batch_size=4), train_dataset=data).train()
"""


@pytest.mark.parametrize(("words", "is_priced"), [(50304, True), (50257, True), (32000, False)])
def test_a_vocabulary_has_the_price_of_the_resized_model(tmp_path: Path, words: int, is_priced: bool) -> None:
    (tmp_path / "net.py").write_text(LANGUAGE_MODEL.replace("WORDS", str(words)))
    (tmp_path / "resized.py").write_text(LANGUAGE_MODEL.replace("WORDS", "50258"))
    (tmp_path / "train.py").write_text(RESIZED)
    settings = Settings(gpus=("a100",), precision="bf16", batch=4, inputs=("int64[1,1024]",))
    beside = check([f"{tmp_path / 'net.py'}:build_model", str(tmp_path / "train.py")], settings)
    effect = of_code(beside, "DIM017").effect
    if not is_priced:
        assert effect.unknown is not None
        return
    assert "DIM017" not in {step.code for step in beside.entries[0].plan}
    resized = check([f"{tmp_path / 'resized.py'}:build_model", str(tmp_path / "train.py")], settings)
    assert effect.best_gain_us == pytest.approx(of_code(resized, "DIM003").effect.best_gain_us, rel=0.05)
