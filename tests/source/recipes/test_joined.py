"""Scripts together with the configuration files that they load, or that start them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.check import check

ARGUMENTS = """\
import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser((TrainingArguments,)).parse_yaml_file("conf/args.yaml")
model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16)
Trainer(model=model, args=args, train_dataset=None).train()
"""
ACCELERATED = """\
import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator()
net = nn.Linear(1024, 1024).half()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
net, optimizer = accelerator.prepare(net, optimizer)
for x, y in torch.utils.data.DataLoader([]):
    loss = (net(x) - y).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


def codes(folder: Path) -> set[tuple[str, str]]:
    report = check(str(folder / "train.py"), Settings(cache=False, select=("AMP",)))
    return {(item.code, item.level) for item in report.findings}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("output_dir: x\nfp16: true\n", {("AMP009", "error")}),
        ("output_dir: x\nfp16: false\n", {("AMP002", "warning")}),
    ],
)
def test_arguments_from_a_file(tmp_path: Path, file: str, expected: set[tuple[str, str]]) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "args.yaml").write_text(file)
    (tmp_path / "train.py").write_text(ARGUMENTS)
    assert codes(tmp_path) == expected
    report = check(str(tmp_path / "train.py"), Settings(cache=False, select=("AMP009",)))
    related = {
        (item.location.path.rpartition("/")[2], item.location.line)
        for finding in report.findings
        for item in finding.related
    }
    assert not report.findings or ("args.yaml", 2) in related


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--config_file acc.yaml", {("AMP009", "error")}),
        ("--config_file acc.yaml --mixed_precision=no", {("AMP002", "warning")}),
        ("", {("AMP009", "error")}),
    ],
)
def test_accelerate_launch(tmp_path: Path, options: str, expected: set[tuple[str, str]]) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "acc.yaml").write_text("compute_environment: LOCAL_MACHINE\nmixed_precision: fp16\n")
    (tmp_path / "run.sh").write_text(
        f"accelerate launch \\\n  {options} \\\n  train.py --mixed_precision x\n"
    )
    (tmp_path / "train.py").write_text(ACCELERATED)
    assert codes(tmp_path) == expected
