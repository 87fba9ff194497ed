"""Whole commands as a user types them: good targets are linted, bad ones are one sentence each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from in_process import tclint

from tclint.config.settings import Settings
from tclint.engine.check import check

pytest.importorskip("torch")

FIXTURES = Path(__file__).parents[2] / "fixtures"

GOOD = """
import torch
from torch import nn


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(1000, 4095), nn.ReLU(), nn.Linear(4095, 1024))


def example_inputs() -> tuple[torch.Tensor]:
    return (torch.empty(4096, 1000, device="meta"),)
"""

BAD = """
import os
import sys
import torch
from torch import nn


def raises():
    raise ValueError("no such config")


def not_a_module():
    return [1, 2]


def loops():
    import time
    time.sleep(600)


def exits():
    sys.exit(3)


def exits_hard():
    os._exit(7)


def needs_arguments(width):
    return nn.Linear(width, 1)


def wrong_shape():
    return nn.Linear(8, 8), torch.empty(2, 9, device="meta")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "broken.py").write_text("def f(:\n")
    return tmp_path


def test_every_bad_target_is_one_sentence_and_the_good_ones_are_linted(project: Path) -> None:
    says = {
        "missing.py:build_model": "missing.py",
        "bad.py:missing": "missing",
        "bad.py:raises": "no such config",
        "bad.py:not_a_module": "list",
        "bad.py:loops": "2",
        "bad.py:exits": "exit",
        "bad.py:exits_hard": "7",
        "bad.py:needs_arguments": "width",
        "bad.py:wrong_shape": "--input",
        "broken.py:build_model": "syntax",
        "nowhere.module:build": "nowhere",
        "missing_folder": "missing_folder",
    }
    done = tclint("good.py:build_model", *says, "--timeout", "2", "--format", "json", cwd=project)
    report = json.loads(done.stdout)
    messages = {error["target"]: error["message"] for error in report["errors"]}
    assert done.returncode == 2
    assert messages.keys() == says.keys()
    for target, part in says.items():
        message = messages[target]
        assert part.lower() in message.lower(), message
        assert "Traceback" not in message
        assert "\n" not in message.strip()
    assert "Traceback" not in done.stderr
    assert [entry["target"] for entry in report["entries"]] == ["good.py:build_model"]
    assert any(finding["code"] == "DIM001" for finding in report["findings"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("good.py:build_model", "--gpu", "a1000"), "a100"),
        (("good.py:build_model", "--select", "DIM01X"), "DIM01X"),
        (("good.py:build_model", "--precision", "bf61"), "bf16"),
        (("good.py:build_model", "--format", "jsn"), "json"),
        (("good.py:build_model", "--input", "8,,3"), "int64[8,128]"),
        (("good.py:build_model", "--input", "float99[8]"), "float99"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_exit_2(
    project: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = tclint(*arguments, cwd=project)
    said = done.stderr + done.stdout
    assert done.returncode == 2
    assert says in said
    assert "Traceback" not in said


def findings_of(project: Path, *arguments: str) -> list[dict[str, Any]]:
    done = tclint(*arguments, "--format", "json", cwd=project)
    assert done.returncode in (0, 1), done.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


def test_gpt2_vocabulary_is_priced_at_its_line_and_gone_when_padded(tmp_path: Path) -> None:
    source = (FIXTURES / "gpt2.py").read_text()
    (tmp_path / "gpt2.py").write_text(source)
    (tmp_path / "padded.py").write_text(source.replace("50257", "50304"))
    found = [
        finding
        for finding in findings_of(tmp_path, "gpt2.py:build_model", "--gpu", "a100")
        if finding["code"] == "DIM003"
    ]
    assert len(found) == 1
    line = source.splitlines()[found[0]["location"]["line"] - 1]
    assert "nn.Embedding(" in line or "nn.Linear(" in line
    assert "50304" in found[0]["message"] + json.dumps(found[0]["fix"])
    effect = found[0]["effect"]["a100-sxm4-80gb"]
    assert effect["gain_us"] > 0
    assert effect["gain_percent"] > 1
    padded = findings_of(tmp_path, "padded.py:build_model", "--gpu", "a100")
    assert [finding for finding in padded if finding["code"] == "DIM003"] == []


def test_resnet50_layout_is_one_finding_and_its_three_channels_another() -> None:
    found = findings_of(FIXTURES, "resnet50.py:build_model", "--gpu", "v100", "--gpu", "a100")
    codes = [finding["code"] for finding in found]
    assert codes.count("FMT001") == 1
    assert codes.count("DIM006") == 1
    layout = next(finding for finding in found if finding["code"] == "FMT001")
    assert set(layout["effect"]) == {"v100-sxm2-16gb", "a100-sxm4-80gb"}
    assert all(effect["cost_us"] > 0 for effect in layout["effect"].values())


def test_models_and_scripts_mix_in_one_command_and_comments_silence_both(project: Path) -> None:
    script = (FIXTURES / "train_fp16_no_scaler.py").read_text()
    (project / "train.py").write_text(script)
    codes = {finding["code"] for finding in findings_of(project, "good.py:build_model", "train.py")}
    assert {"DIM001", "AMP001", "AMP006"} <= codes

    (project / "good.py").write_text("# tclint: file-ignore[DIM]\n" + GOOD)
    (project / "train.py").write_text("# tclint: file-ignore[AMP001, AMP006] a demonstration\n" + script)
    codes = {finding["code"] for finding in findings_of(project, "good.py:build_model", "train.py")}
    assert not codes & {"DIM001", "AMP001", "AMP006"}


def test_without_torch_sources_are_linted_and_models_say_what_to_install(project: Path) -> None:
    (project / "train.py").write_text((FIXTURES / "train_fp16_no_scaler.py").read_text())
    (project / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    done = subprocess.run(
        [sys.executable, "-m", "tclint", "good.py:build_model", "train.py", "--format", "json"],
        cwd=project,
        env={"PYTHONPATH": str(project), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    report = json.loads(done.stdout)
    assert done.returncode == 2
    assert "tensorcore-lint[torch]" in report["errors"][0]["message"]
    assert {finding["code"] for finding in report["findings"]} == {"AMP001", "AMP006", "RUN012"}


def test_the_readme_shows_what_is_printed() -> None:
    """To renew it: paste what the command prints, up to the first line of the legend."""
    root = FIXTURES.parent
    _, _, rest = (root / "README.md").read_text(encoding="utf-8").partition("```text\n$ tclint ")
    shown, fence, _ = rest.partition("\n```\n")
    command, _, output = shown.partition("\n")
    assert fence
    done = tclint(*command.split(), cwd=root)
    assert done.stdout.startswith(output + "\n\nTimes are predicted")


TWO_BIASES = """
import torch
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(64, 64, 3),
        nn.BatchNorm2d(64),
        nn.Conv2d(64, 128, 3),
        nn.BatchNorm2d(128),
    ), torch.zeros(32, 64, 56, 56)
"""


def test_a_line_that_both_passes_see_is_reported_once_with_its_price(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(TWO_BIASES)
    options = ("--select", "ARC001", "--min-gain", "0", "--gpu", "a100")
    read = findings_of(tmp_path, "net.py", *options)
    both = findings_of(tmp_path, "net.py:build", "net.py", *options)
    assert len(read) == 2
    assert len(both) == 1
    assert "unknown" not in both[0]["effect"]


TIED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(50257, 256)
        self.head = nn.Linear(256, 50257, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        return self.head(self.wte(tokens))


def build():
    return Model(), torch.zeros(4, 256, dtype=torch.long)
"""


def test_one_vocabulary_is_one_finding(tmp_path: Path) -> None:
    path = tmp_path / "lm.py"
    path.write_text(TIED)
    settings = Settings(select=("DIM003",), min_gain_percent=0.0, gpus=("a100",))
    (read,) = check([str(path)], settings).findings
    assert read.effect.unknown is not None
    (traced,) = check([f"{path}:build", str(path)], settings).findings
    assert traced.effect.unknown is None
