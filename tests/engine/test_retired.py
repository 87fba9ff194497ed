"""Codes of rules that are gone stay valid where users wrote them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from in_process import tclint

from tclint.engine.retired import retired_rules
from tclint.engine.rules.registry import all_rules

LOOP = (
    "import torch\n\nscaler = torch.amp.GradScaler('cuda')\n"
    "for x, y in loader:\n    with torch.autocast('cuda'):\n        loss = model(x, y)\n"
    "    scaler.scale(loss).backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    "    scaler.step(optimizer)\n    scaler.update()\n"
)
RUN = ("train.py", "--format", "json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(LOOP)
    (tmp_path / "pyproject.toml").write_text("[tool.tclint]\n")
    return tmp_path


def test_no_rule_has_a_retired_code_or_name() -> None:
    gone = {text for rule in retired_rules() for text in (rule.code, rule.name)}
    assert len(gone) == 2 * len(retired_rules()) >= 16
    assert not gone & {text for rule in all_rules() for text in (rule.code, rule.name)}


def test_they_select_nothing_and_one_sentence_says_so(folder: Path) -> None:
    alone = tclint(*RUN, "--select", "AMP003", cwd=folder)
    (folder / "pyproject.toml").write_text(
        '[tool.tclint]\nselect = ["AMP003", "PRC003"]\nignore = ["prefer-wide"]\n'
    )
    beside = tclint(*RUN, cwd=folder)
    assert (beside.returncode, json.loads(beside.stdout)["findings"]) == (
        alone.returncode, json.loads(alone.stdout)["findings"])  # fmt: skip
    assert [line.split(" is retired: ")[0] for line in beside.stderr.splitlines()] == [
        "note: ARC011 (prefer-wide)", "note: PRC003 (tf32-legacy-api)"]  # fmt: skip
    assert json.loads(tclint(*RUN, "--isolated", "--select", "PRC003", cwd=folder).stdout)["findings"] == []


def test_comments_and_baselines_that_name_them_are_right(folder: Path) -> None:
    (folder / "train.py").write_text(LOOP.replace("cuda')\n", "cuda')  # tclint: ignore[ARC011] wide\n", 1))
    found = json.loads(tclint(*RUN, "--select", "ALL", cwd=folder).stdout)["findings"]
    assert "AMP003" in {finding["code"] for finding in found}
    assert not {finding["code"] for finding in found} & {"TCL002", "TCL004"}
    assert tclint("baseline", "write", "train.py", cwd=folder).returncode == 0
    file = folder / "tclint-baseline.json"
    file.write_text(
        file.read_text().replace("AMP003", "ARC011").replace("clip-before-unscale", "prefer-wide")
    )
    result = tclint(*RUN, "--baseline", file.name, cwd=folder)
    assert "AMP003" in {finding["code"] for finding in json.loads(result.stdout)["findings"]}
    assert result.returncode == 1


def test_explaining_one_says_why_it_is_gone() -> None:
    result = tclint("explain", "sparse-24-shape", "--isolated")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ARC015 (sparse-24-shape) is retired: ")


TIED = (
    "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n"
    "        self.words = nn.Embedding(50257, 768)\n"
    "        self.head = nn.Linear(768, 50257, bias=False)\n"
    "        self.head.weight = self.words.weight\n\n"
    "    def forward(self, x):\n        return self.head(self.words(x))\n\n\n"
    "model = Net().cuda()\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "for x, y in loader:\n    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())\n"
    "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
)
TIE = "self.head.weight = self.words.weight"
UNTIED = TIED.replace(f"        {TIE}\n", "")


def _codes(folder: Path, *arguments: str, text: str = TIED) -> list[str]:
    (folder / "train.py").write_text(text)
    result = tclint(*RUN, *arguments, cwd=folder)
    return [finding["code"] for finding in json.loads(result.stdout)["findings"]]


@pytest.mark.parametrize("selector", ["ARC018", "lm-head-no-padding-tie", "ARC"])
@pytest.mark.parametrize("where", ["comment", "file", "ignore", "path"])
def test_what_silenced_one_silences_its_successor_in_its_place(
    folder: Path, selector: str, where: str
) -> None:
    assert _codes(folder, "--select", "DIM") == _codes(folder, "--select", "DIM", text=UNTIED) == ["DIM003"]
    line, head = (f"  # tclint: ignore[{selector}]", "") if where == "comment" else ("", "")
    if where == "file":
        head = f"# tclint: file-ignore[{selector}]\n"
    ignored = f'ignore = ["{selector}"]\n'
    settings = {"ignore": ignored, "path": f'[[tool.tclint.overrides]]\npaths = ["train.py"]\n{ignored}'}
    (folder / "pyproject.toml").write_text("[tool.tclint]\nselect = ['DIM']\n" + settings.get(where, ""))
    assert _codes(folder, text=head + TIED.replace(TIE, TIE + line)) == []
    # What the retired rule never found is still reported.
    layer = "bias=False)"
    assert _codes(folder, text=head + UNTIED.replace(layer, layer + line)) == ["DIM003"]


def test_a_baseline_entry_of_one_accepts_the_finding_of_its_successor(folder: Path) -> None:
    (folder / "train.py").write_text(TIED)
    choice = ("--select", "DIM003")
    assert tclint("baseline", "write", "train.py", *choice, cwd=folder).returncode == 0
    file = folder / "tclint-baseline.json"
    data = json.loads(file.read_text())
    entry = data["findings"][0]
    identity = f"Net.__init__:{TIE}"
    old = hashlib.sha256("\0".join(("ARC018", "train.py", identity)).encode()).hexdigest()[:16]
    entry.update(code="ARC018", name="lm-head-no-padding-tie", fingerprint=old)
    file.write_text(json.dumps(data))
    known = ("--baseline", file.name, *choice)
    assert _codes(folder, *known) == []
    assert _codes(folder, *known, text=UNTIED) == ["DIM003"]
    # It is taken out once it is fixed, and written under the successor's code when the file is made again.
    assert tclint("baseline", "write", "train.py", *choice, cwd=folder).returncode == 0
    assert [one["code"] for one in json.loads(file.read_text())["findings"]] == ["DIM003"]
    file.write_text(json.dumps(data))
    assert _codes(folder, *known, "--update-baseline", text=TIED.replace("50257", "50304")) == []
    assert json.loads(file.read_text())["findings"] == []
