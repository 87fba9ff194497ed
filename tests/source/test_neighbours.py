"""Rules about something missing look at the files that run together with the one they speak about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.engine.sources.lint import lint
from tclint.source.project.launchers import launcher_with
from tclint.source.project.scripts import Scripts
from tclint.source.source_rule import SourceRule
from tclint_rules.amp.bfloat16_weights import Bfloat16Weights
from tclint_rules.amp.frozen_in_float32 import FrozenInFloat32
from tclint_rules.amp.no_mixed_precision import NoMixedPrecision
from tclint_rules.formats.layout_of_model import InputChannelsLastModelNot
from tclint_rules.precision.tf32_matmul_off import Tf32MatmulOff
from tclint_rules.runtime.cudnn_benchmark_missing import CudnnBenchmarkMissing

TRAIN = """\
import torch
from torch import nn
from torchvision import datasets, transforms
from {helper} import prepare

steps = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])
loader = torch.utils.data.DataLoader(datasets.ImageFolder("images", steps), 64)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 6).cuda()
stem = nn.Conv2d(3, 64, 3).cuda()
for images, labels in loader:
    images = images.to("cuda", memory_format=torch.channels_last)
    loss = criterion(model(stem(images)), labels.cuda())
    loss.backward()
    optimizer.step()
"""
RULES: list[SourceRule] = [CudnnBenchmarkMissing(), Tf32MatmulOff(), InputChannelsLastModelNot()]


def project(folder: Path, files: dict[str, str]) -> Path:
    (folder / "pyproject.toml").write_text("")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def codes(path: Path) -> list[str]:
    return sorted(finding.code for finding in lint([str(path)], RULES, Settings()).findings)


def test_a_project_without_switches(tmp_path: Path) -> None:
    root = project(tmp_path, {"train.py": TRAIN.format(helper="util"), "util.py": "def prepare(): pass\n"})
    assert codes(root / "train.py") == ["FMT004", "PRC001", "RUN001"]


@pytest.mark.parametrize("place", ["util.py", "lib/setup.py"])
def test_an_imported_file_sets_them(tmp_path: Path, place: str) -> None:
    switches = (
        "import torch\ntorch.set_float32_matmul_precision('high')\ntorch.backends.cudnn.benchmark = True\n"
    )
    chain = "from lib.setup import prepare\n" if place != "util.py" else ""
    root = project(tmp_path, {"train.py": TRAIN.format(helper="util"), "util.py": chain, place: switches})
    assert codes(root / "train.py") == ["FMT004"]


def test_the_program_that_imports_it_sets_them(tmp_path: Path) -> None:
    main = "import train\nimport torch\ntorch.backends.cudnn.benchmark = True\n"
    root = project(tmp_path, {"train.py": TRAIN.format(helper="util"), "main.py": main})
    assert codes(root / "train.py") == ["FMT004", "PRC001"]


def test_another_program_of_the_project_does_not_count(tmp_path: Path) -> None:
    other = "import torch\ntorch.backends.cudnn.benchmark = True\n"
    root = project(tmp_path, {"train.py": TRAIN.format(helper="util"), "other.py": other})
    assert "RUN001" in codes(root / "train.py")


def test_the_script_that_starts_a_package_is_found_through_relative_imports(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        {
            "main.py": "from pkg.a import one\n",
            "pkg/__init__.py": "",
            "pkg/a/__init__.py": "",
            "pkg/a/one.py": "from ..b import two\n",
            "pkg/b/__init__.py": "",
            "pkg/b/two.py": "word = 1\n",
            "pkg/b/four.py": "other = 1\n",
        },
    )
    assert Scripts.around(path := str(root / "pkg/b/two.py")).of(path) == str(root / "main.py")
    assert Scripts.around(path := str(root / "pkg/b/four.py")).of(path) == str(root / "pkg/b/four.py")


STEPS = """\
def mesh(points): return points


def train(model, loader):
    for x in loader:
        model(x).backward()
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("from lib.steps import mesh\nmesh(1)\n", "from lib.steps import train\ntrain(1, 2)\n"),
        ("from lib.steps import train\n", "from lib.steps import train\ntrain(1, 2)\n"),
        (
            "from importlib import import_module\nimport_module('lib.' + name).mesh(1)\n",
            "from importlib import import_module\nimport_module('lib.' + name).train(1)\n",
        ),
    ],
)
def test_a_file_belongs_to_the_script_that_uses_what_trains_in_it(
    tmp_path: Path, first: str, second: str
) -> None:
    root = project(tmp_path, {"a.py": first, "beta.py": second, "lib/steps.py": STEPS, "lib/__init__.py": ""})
    scripts = Scripts.around(str(root / "a.py"))
    assert scripts.of(str(root / "lib/steps.py")) == str(root / "beta.py")


def test_text_without_a_file_has_no_neighbours() -> None:
    assert Scripts.around("nowhere.py").of("nowhere.py") == "nowhere.py"
    assert not launcher_with("nowhere.py", re.compile(b"torch"))


FROZEN = """\
import torch
from accelerate import Accelerator
from diffusers import AutoencoderKL, UNet2DConditionModel

accelerator = Accelerator()
vae = AutoencoderKL.from_pretrained("some/vae").to(accelerator.device)
unet = UNet2DConditionModel.from_pretrained("some/unet")
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5)
loader = torch.utils.data.DataLoader(samples, 16)
unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
for images, times, words in loader:
    with torch.no_grad():
        latents = vae.encode(images).latent_dist.sample()
    loss = (unet(latents, times, words).sample - latents).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""
IN_BFLOAT16 = """\
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/llm", dtype=torch.bfloat16).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ADAPTED = """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2-xl"), LoraConfig(r=16))
Trainer(model, TrainingArguments("runs", bf16=True), train_dataset=dataset).train()
"""


@pytest.mark.parametrize(
    ("text", "command", "found"),
    [
        (FROZEN, "python train.py", []),
        (FROZEN, "accelerate launch --mixed_precision bf16 train.py", ["AMP033"]),
        (IN_BFLOAT16, "python train.py", ["AMP032"]),
        (IN_BFLOAT16, "deepspeed train.py --deepspeed zero2.json", []),
        (ADAPTED, "python train.py", ["AMP033"]),
        (ADAPTED, "deepspeed train.py --deepspeed zero2.json", []),
    ],
)
def test_launchers_choose_autocast_and_keep_weights(
    tmp_path: Path, text: str, command: str, found: list[str]
) -> None:
    root = project(tmp_path, {"train.py": text, "README.md": f"```\n{command}\n```\n"})
    rules: list[SourceRule] = [Bfloat16Weights(), FrozenInFloat32()]
    report = lint([str(root / "train.py")], rules, Settings(cache=False))
    assert sorted(finding.code for finding in report.findings) == found


OPTIONAL = """\
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
options = parser.parse_args()
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in torch.utils.data.DataLoader(samples, 64):
    with torch.autocast("cuda", torch.bfloat16, enabled=options.amp):
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TRAINERS = """\
import argparse
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
options = parser.parse_args()
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
Trainer(model, TrainingArguments("runs", fp16=options.fp16), train_dataset=dataset).train()
"""
NAMED = """\
import argparse
import torch
from accelerate import Accelerator
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="no")
options = parser.parse_args()
accelerator = Accelerator(mixed_precision=options.precision)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(samples, 64)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("text", "file", "words", "is_found"),
    [
        (OPTIONAL, "run.sh", "python train.py", True),
        (OPTIONAL, "run.sh", "python train.py --amp", False),
        (OPTIONAL, "run.sh", "python train.py --amp-level O1", True),
        (OPTIONAL, "jobs.yaml", "command: train.py --amp", False),
        (OPTIONAL, "README.md", "```\npython train.py --amp\n```", False),
        (OPTIONAL, "README.md", "There is `--amp`.\n```\npython train.py\n```", True),
        (TRAINERS, "README.md", "```\npython train.py\n```", True),
        (TRAINERS, "README.md", "```\ndeepspeed train.py\n```", False),
        (TRAINERS, "README.md", "```\naccelerate launch train.py\n```", False),
        (NAMED, "README.md", "```\naccelerate launch train.py\n```", True),
    ],
)
def test_commands_turn_an_option_of_mixed_precision_on(
    tmp_path: Path, text: str, file: str, words: str, is_found: bool
) -> None:
    root = project(tmp_path, {"train.py": text, file: f"{words}\n"})
    report = lint([str(root / "train.py")], [NoMixedPrecision()], Settings(cache=False))
    assert bool(report.findings) is is_found


BRANCHES = """\
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
options = parser.parse_args()
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda") if options.amp else None
for x, y in torch.utils.data.DataLoader(samples, 64):
    if options.amp:
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
"""


def test_the_backward_without_autocast_is_named(tmp_path: Path) -> None:
    root = project(tmp_path, {"train.py": BRANCHES})
    (finding,) = lint([str(root / "train.py")], [NoMixedPrecision()], Settings(cache=False)).findings
    assert BRANCHES.splitlines()[finding.location.line - 1].strip() == "loss.backward()"
