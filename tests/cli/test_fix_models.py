"""`tclint fix model.py:build_model`: the plan, its edits, their proof, and what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tclint.analysis.graph_context import GraphContext
from tclint.cli.main import cli
from tclint.core.errors import UsageError
from tclint.engine.fixes import proof
from tclint.engine.fixes.files import edited_files, write_files
from tclint.engine.fixes.plan import FixPlan, read_plan

pytest.importorskip("torch")

PACKAGE = {
    "config.json": '{"steps": 1500, "width": 1500, "tokens": 8003}\n',
    "parts.py": """\
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, c))


class Language(nn.Module):
    def __init__(self, tokens, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.attention = Attention(width, heads)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, ids):
        return self.head(self.attention(self.tokens(ids)))
""",
    "model.py": """\
import json
from pathlib import Path

import torch

from parts import Language


def build_model():
    config = json.loads(Path(__file__).with_name("config.json").read_text())
    return Language(config["tokens"], config["width"], heads=12)


def example_inputs():
    return torch.zeros(16, 128, dtype=torch.long)
""",
    "train.py": """\
import torch

from model import build_model


def train(loader):
    model = build_model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for ids, targets in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(ids.cuda())
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.cuda().flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
""",
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--isolated", "--gpu", "a100"], catch_exceptions=False)


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result, dict[str, Any]]:
    """A folder, what the command said, and the plan that it wrote beside the folder."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    file = folder.parent / f"{folder.name}.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run("fix", "model.py:build_model", "train.py", "--plan", str(file))
    return folder, result, json.loads(file.read_text())


def test_the_report_says_what_the_plan_comes_to(
    planned: tuple[Path, Result, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = planned
    monkeypatch.chdir(folder)
    only = ("model.py:build_model", "train.py", "--select", "DIM003")
    report = json.loads(run(*only, "--format", "json").stdout)
    (finding,) = report["findings"]
    (metrics,) = report["entries"][0]["metrics"].values()
    (gain,) = finding["effect"].values()
    assert metrics["step_time_cut_back_us"] > metrics["step_time_fixed_us"]
    assert next(iter(gain["elsewhere_us"])) == "cross_entropy_loss"
    assert sum(gain["elsewhere_us"].values()) < gain["gain_us"]
    file = folder.parent / "vocabulary.json"
    run("fix", *only, "--plan", str(file))
    (step,) = json.loads(file.read_text())["steps"]
    assert [*step["step_time_us"].values()] == [pytest.approx(metrics["step_time_cut_back_us"], abs=0.01)]
    percent = 100.0 * (1.0 - metrics["step_time_cut_back_us"] / metrics["step_time_us"])
    cut = f", or {percent:.1f} % where tclint fix cuts the padded outputs back."
    assert finding["message"].endswith(cut)
    shown = " ".join(run(*only).stdout.split())
    assert "where tclint fix cuts the padded outputs back), readiness" in shown


def test_the_plan_is_shown_and_nothing_is_written(planned: tuple[Path, Result, dict[str, Any]]) -> None:
    folder, result, plan = planned
    assert result.exit_code == 0
    assert texts(folder) == PACKAGE
    assert "DIM003 vocab-misaligned (head): 8003 -> " in result.stdout
    assert f"{len(plan['steps'])} of {len(plan['steps'])} edited and proved" in result.stdout
    assert "not written: config.json, parts.py; --unsafe-fixes makes the plan's edits\n" in result.stderr
    assert plan["schema_version"] == "1"
    read = FixPlan.from_json(plan)
    assert FixPlan.from_json(json.loads(json.dumps(read.to_json()))) == read


def test_edits_stand_where_sizes_are_written(planned: tuple[Path, Result, dict[str, Any]]) -> None:
    _, _, plan = planned
    edits = {(edit["path"], edit["old"], edit["new"]) for step in plan["steps"] for edit in step["edits"]}
    width = next(new for path, old, new in edits if (path, old) == ("config.json", "1500"))
    assert int(width) % 8 == 0
    assert ("parts.py", "tokens", "(tokens + 63) // 64 * 64") in edits  # other readers of "tokens" keep it
    assert ("parts.py", "", "[..., :self.unpadded_tokens]") in edits  # logits as the caller knows them
    assert ("parts.py", "", ", scale=125 ** -0.5") in edits  # heads grow, and their default scale would
    assert len(edits) == 5
    assert all(step["proved"] and not step["reason"] for step in plan["steps"])
    assert sum(step["parameters_added"] for step in plan["steps"]) > 0


def test_a_plan_is_made_and_nothing_is_left(
    planned: tuple[Path, Result, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, plan = planned
    for name, text in PACKAGE.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    write_files(edited_files(FixPlan.from_json(plan)))
    changed = texts(tmp_path)
    assert {name for name in PACKAGE if changed[name] != PACKAGE[name]} == {"config.json", "parts.py"}
    assert changed["config.json"].startswith('{"steps": 1500, "width": 1')
    assert "self.head(self.attention(self.tokens(ids)))[..., :self.unpadded_tokens]" in changed["parts.py"]
    report = json.loads(run("model.py:build_model", "train.py", "--format", "json").stdout)
    fixed = {step["fingerprint"] for step in plan["steps"]}
    assert not fixed & {finding["fingerprint"] for finding in report["findings"]}
    [entry] = report["entries"]
    last = plan["steps"][-1]["step_time_us"]["a100-sxm4-80gb"]
    assert any(step["cuts_us"] for step in plan["steps"])  # which are in that time
    assert entry["metrics"]["a100-sxm4-80gb"]["step_time_us"] == pytest.approx(last, rel=0.005)


def test_pretrained_weights_follow_and_the_edited_model_computes_the_same(
    planned: tuple[Path, Result, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    import tclint

    _, result, data = planned
    plan = FixPlan.from_json(data)
    assert (
        "tclint pad carries them over; the model computes the same, as runs of both showed" in result.stdout
    )
    for name, text in PACKAGE.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    original = language(PACKAGE)
    assert sorted(tclint.apply(plan)) == [str(tmp_path / name) for name in ("config.json", "parts.py")]
    edited = language(texts(tmp_path))
    edited.load_state_dict(tclint.pad_state_dict(original.state_dict(), plan))
    ids = torch.randint(8003, (2, 5))
    with torch.no_grad():
        torch.testing.assert_close(edited(ids), original(ids), rtol=1e-9, atol=1e-12)


def language(files: dict[str, str]) -> Any:
    """The model of a package's files."""
    names: dict[str, Any] = {}
    exec(files["parts.py"], names)
    sizes = json.loads(files["config.json"])
    return names["Language"](sizes["tokens"], sizes["width"], 12).double()


def test_a_file_that_changed_since_is_left_alone(
    planned: tuple[Path, Result, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, plan = planned
    for name, text in PACKAGE.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "parts.py").write_text(PACKAGE["parts.py"] + "\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="has changed since"):
        edited_files(FixPlan.from_json(plan))


def test_what_is_not_proved_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import torch\nfrom torch import nn\n\n\ndef build_model(width=1500, tokens=8003):\n"
        "    return nn.Sequential(nn.Embedding(tokens, width), nn.Linear(width, tokens))\n\n\n"
        "def example_inputs():\n    return torch.zeros(16, 128, dtype=torch.long)\n"
    )
    (tmp_path / "model.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    real = proof.step_times_us

    def slower(context: GraphContext) -> dict[str, float]:
        """Twice the times for every model but the one that is to be fixed."""
        vocabulary = context.graph.parameters[0].shape[0]
        return {gpu: time if vocabulary == 8003 else 2 * time for gpu, time in real(context).items()}

    monkeypatch.setattr(proof, "step_times_us", slower)
    result = run("fix", "model.py:build_model", "--unsafe-fixes")
    assert result.exit_code == 0
    assert (tmp_path / "model.py").read_text() == code
    assert "not edited: the edited model's step is no shorter: " in " ".join(result.stdout.split())
    assert "by hand: model.py:5: 8003 -> " in result.stdout
    assert result.stderr == "model.py:build_model: nothing to write\n"


def test_plans_are_of_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    result = run("fix", "a.py:A", "b.py:B", "--plan", "plan.json")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: --plan writes the plan of one model; you named 2.\n",
    )
    result = run("fix", "train.py", "--plan", "plan.json")
    assert result.exit_code == 2
    assert "--plan writes the plan of a model's fixes" in result.stderr
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a plan that"):
        read_plan("plan.json")


CONVOLUTIONS = """\
import torch
from torch import nn


def build_model():
    return nn.Sequential(*(nn.Conv2d(64, 64, 3) for _ in range(6)))


def example_inputs():
    return torch.empty(16, 64, 64, 64)
"""
SCRIPT = """\
import torch

from model import build_model

model = build_model()
optimizer = torch.optim.Adam(model.parameters())
for images, labels in loader:
    images = images.cuda()
    out = model(images)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(out.{flat}, labels.view(-1))
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("flat", ["view(-1)", "flatten()"])
def test_outputs_that_a_script_views_stay_contiguous_and_the_diff_shows_all(
    flat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(CONVOLUTIONS)
    (tmp_path / "train.py").write_text(SCRIPT.format(flat=flat))
    monkeypatch.chdir(tmp_path)
    flags = ("--precision", "fp16", "--select", "FMT001,RUN")
    if flat == "view(-1)":
        result = run("fix", "model.py:build_model", "train.py", *flags)
        assert "not edited: views at train.py:10 need contiguous outputs" in result.stdout
        return
    result = run("fix", "model.py:build_model", "train.py", "--diff", "--unsafe-fixes", *flags)
    assert result.exit_code == 1
    assert "+    return nn.Sequential(" in result.stdout
    assert "+++ model.py" in result.stdout
    assert result.stdout.endswith("\n")
    assert "would write model.py\n" in result.stderr
    assert (tmp_path / "model.py").read_text() == CONVOLUTIONS


CAUSAL = """\
import torch
from torch import nn


class Config:
    width: int = 1020
    heads: int = 12


class Attention(nn.Module):
    def __init__(self, config=Config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        mask = torch.tril(torch.ones(t, t, device=x.device)).bool()
        scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        y = scores @ v
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


def example_inputs():
    return torch.empty(8, 1024, 1020)
"""


def test_causal_attention_is_fused_and_copies_of_the_file_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(CAUSAL)
    (tmp_path / "model_of_last_year.py").write_text(CAUSAL)
    monkeypatch.chdir(tmp_path)
    result = run("fix", "model.py:Attention", "--select", "DIM001,ARC005", "--unsafe-fixes")
    assert result.exit_code == 0, result.output
    assert "model_of_last_year" not in result.output
    text = (tmp_path / "model.py").read_text()
    assert "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=" in text
    assert "tril" not in text


NORMED = """\
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
"""


def test_a_bias_that_a_norm_cancels_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(NORMED)
    monkeypatch.chdir(tmp_path)
    result = run("fix", "model.py:Net", "--select", "ARC001", "--input", "16,64,64,64", "--unsafe-fixes")
    assert result.exit_code == 0, result.output
    assert "1 of 1 edited and proved" in result.stdout
    assert (tmp_path / "model.py").read_text() == NORMED.replace("64, 3)", "64, 3, bias=False)")


FLATTENED = """\
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 30, 5)
        self.conv2 = nn.Conv2d(30, 50, 5)
        self.fc1 = nn.Linear(50 * 5 * 5, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(-1, 50 * 5 * 5)
        return self.fc2(F.relu(self.fc1(x)))


def example_inputs():
    return torch.empty(512, 3, 32, 32)
"""


def test_sizes_that_a_product_is_made_of_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(FLATTENED)
    monkeypatch.chdir(tmp_path)
    result = run("fix", "model.py:Net", "--select", "DIM")
    assert "by hand: model.py:10: 50 -> 56    self.conv2 =" in result.stdout
    assert "by hand: model.py:11: 1250 -> 1400    self.fc1 =" in result.stdout
