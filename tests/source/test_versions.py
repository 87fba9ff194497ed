"""Findings and fixes name nothing that the releases lack which a project is pinned to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_process import tclint

from tclint.config.settings import Settings
from tclint.core.finding import Finding
from tclint.engine.check import check

LOOP = """\
import torch
from torch import nn

network = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(pairs, num_workers=4, pin_memory=True):
    loss = (network(x.cuda(non_blocking=True)) - y.cuda(non_blocking=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TRAINER = """\
from torch import nn, optim
from pytorch_lightning import LightningModule, Trainer


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))

    def training_step(self, batch, index):
        x, y = batch
        return (self.network(x) - y).pow(2).mean()

    def configure_optimizers(self):
        return optim.SGD(self.parameters(), lr=0.1)


Trainer(max_epochs=3).fit(Regression(), pairs)
"""
PROBABILITIES = """\
import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 1), nn.Sigmoid()).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    with torch.cuda.amp.autocast():
        loss = nn.functional.binary_cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
DEFAULT_OPTIMIZER = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("some/llm")
Trainer(model, TrainingArguments("runs", bf16=True), train_dataset=dataset).train()
"""
QUANTIZED = """\
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

quantization = BitsAndBytesConfig(load_in_4bit=True)
model = AutoModelForCausalLM.from_pretrained("some/llm", quantization_config=quantization)
Trainer(model, TrainingArguments("runs", {precision}=True), train_dataset=dataset).train()
"""


def found(folder: Path, text: str, pinned: str) -> dict[str, Finding]:
    (folder / "requirements.txt").write_text(pinned)
    (folder / "train.py").write_text(text)
    report = check(str(folder / "train.py"), Settings(cache=False))
    return {finding.code: finding for finding in report.findings}


@pytest.mark.parametrize(
    ("pinned", "codes"),
    [
        ("", {"AMP016", "PRC001"}),
        ("torch>=1.4\n", {"AMP016", "PRC001"}),
        ("torch==1.11\n", {"AMP016"}),
        ("torch==1.4\n", set()),
    ],
)
def test_advice_is_what_the_pinned_torch_has(tmp_path: Path, pinned: str, codes: set[str]) -> None:
    assert {"AMP016", "PRC001"} & found(tmp_path, LOOP, pinned).keys() == codes


@pytest.mark.parametrize(
    ("requirements", "codes"),
    [
        ("torch=1.11.0=py3.9_cuda11.3_0\n", {"AMP016"}),
        ("torch==1.11; python_version < '3.8'\ntorch==2.4; python_version >= '3.8'\n", {"AMP016", "PRC001"}),
    ],
)
def test_each_file_may_be_the_one_that_is_installed(
    tmp_path: Path, requirements: str, codes: set[str]
) -> None:
    (tmp_path / "environment.yml").write_text("dependencies:\n  - pytorch=2.1.1=py3.11_cuda12.1_0\n")
    assert {"AMP016", "PRC001"} & found(tmp_path, LOOP, requirements).keys() == codes


def test_advice_has_the_names_of_the_pinned_torch(tmp_path: Path) -> None:
    for pinned, autocast, scaler in (
        ("torch==2.6", "torch.autocast", "torch.amp.GradScaler"),
        ("torch==2.0", "torch.autocast", "torch.cuda.amp.GradScaler"),
        ("torch==1.8", "torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler"),
    ):
        fix = found(tmp_path, LOOP, f"{pinned}\n")["AMP016"].fix
        assert fix is not None
        assert f"under {autocast}," in fix.advice
        assert f"with {scaler}." in fix.advice


@pytest.mark.parametrize(("pinned", "is_found"), [("1.9", True), ("1.4", False)])
def test_lightning_s_precision_is_one_that_it_takes(tmp_path: Path, pinned: str, is_found: bool) -> None:
    assert ("AMP016" in found(tmp_path, TRAINER, f"pytorch-lightning=={pinned}\n")) is is_found


@pytest.mark.parametrize(("precision", "is_found"), [("", True), ("precision=16, ", False)])
def test_a_backend_of_lightning_1_chooses_no_precision(
    tmp_path: Path, precision: str, is_found: bool
) -> None:
    script = TRAINER.replace("max_epochs", f'amp_backend="apex", amp_level="O2", {precision}max_epochs')
    assert ("AMP016" in found(tmp_path, script, "pytorch-lightning==1.9\n")) is is_found


def test_errors_stay_where_their_fix_is_newer(tmp_path: Path) -> None:
    raises = found(tmp_path, PROBABILITIES, "torch==1.4\n")["AMP007"]
    assert raises.level == "error"
    assert raises.fix is None


def test_older_calls_have_their_own_arguments(tmp_path: Path) -> None:
    fix = found(tmp_path, PROBABILITIES, "torch==1.8\n")["AMP007"].fix
    assert fix is not None
    assert "torch.cuda.amp.autocast(enabled=False)" in fix.advice


@pytest.mark.parametrize(
    ("precision", "pinned", "is_found"),
    [
        ("bf16", "", True),
        ("bf16", "bitsandbytes>=0.43\n", True),
        ("bf16", "bitsandbytes==0.46.1\n", False),
        ("fp16", "bitsandbytes==0.46.1\n", True),
    ],
)
def test_older_4_bit_layers_follow_bfloat16_inputs(
    tmp_path: Path, precision: str, pinned: str, is_found: bool
) -> None:
    text = QUANTIZED.format(precision=precision)
    assert ("PRC010" in found(tmp_path, text, pinned)) is is_found


@pytest.mark.parametrize(
    ("pinned", "how"),
    [
        ("", None),
        ("transformers>=4.40\n", None),
        ("transformers==4.40.2\n", "runs several kernels over all parameters per step"),
        ("transformers==4.56.2\ntorch==2.6\n", "runs several kernels over all parameters per step"),
        ("transformers==4.28.1\n", "updates parameter by parameter"),
        ("transformers==4.26.1\n", None),
    ],
)
def test_trainer_s_default_optimizer_is_that_of_the_pinned_releases(
    tmp_path: Path, pinned: str, how: str | None
) -> None:
    finding = found(tmp_path, DEFAULT_OPTIMIZER, pinned).get("RUN012")
    assert (finding is None) if how is None else (finding is not None and how in finding.message)


@pytest.mark.parametrize(("pinned", "is_found"), [("", True), ("torch==2.0\n", False)])
def test_averages_stay_where_torch_has_no_other_way(tmp_path: Path, pinned: str, is_found: bool) -> None:
    text = LOOP + "    for p, q in zip(network.parameters(), average.parameters()):\n"
    text += "        q.data.lerp_(p.data, 0.01)\n"
    assert ("RUN028" in found(tmp_path, text, pinned)) is is_found


def test_verbose_reports_say_what_the_pins_keep_back(tmp_path: Path) -> None:
    def said(pinned: str, *flags: str) -> list[str]:
        (tmp_path / "train.py").write_text(LOOP)
        (tmp_path / "requirements.txt").write_text(pinned)
        result = tclint("train.py", "--isolated", "--no-cache", *flags, cwd=tmp_path)
        text = " ".join(result.stdout.split())
        return re.findall(r"not reported: (.*?) \d+ findings? \(", text)

    assert said("numpy\ntorch==1.11\n", "-v") == [
        "2 findings whose fixes need torch 1.12 or 2.3; requirements.txt:2 asks for torch==1.11"
    ]
    assert said("torch==1.11\n") == said("torch>=1.11\n", "-v") == []
    # A rule that is not selected would not have reported anything.
    assert said("torch<1.12\n", "-v", "--ignore", "RUN012") == [
        "1 finding whose fix needs torch 1.12; requirements.txt:1 asks for torch<1.12"
    ]
