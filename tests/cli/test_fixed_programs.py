"""Programs that ran before `tclint fix --unsafe-fixes` and have to run after it: one step on the CPU."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli
from tclint.engine import padding_check

pytest.importorskip("torch")

IMPORTS = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
INPUTS = "\n\ndef example_inputs():\n    return torch.zeros(32, 128, dtype=torch.long)\n"

CONSTANTS = {
    "model.py": IMPORTS
    + """
VOCABULARY = 8003
WIDTH = 500


class Language(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        return self.head(self.body(self.tokens(ids)))


def build_model():
    return Language(VOCABULARY, WIDTH)
"""
    + INPUTS,
    "train.py": IMPORTS
    + """
from model import VOCABULARY, WIDTH, Language, build_model

model = build_model()
model.load_state_dict(model.state_dict())
ids = torch.arange(8).view(2, 4)
logits = model(ids)
F.cross_entropy(logits.view(-1, VOCABULARY), ids.view(-1), label_smoothing=0.1).backward()
model.body(torch.randn(2, WIDTH))
assert logits.shape == (2, 4, VOCABULARY) == (2, 4, 8003)
assert Language(9001, 8)(ids).shape[-1] == 9001
""",
}

FIELDS = {
    "model.py": IMPORTS
    + """
from dataclasses import dataclass


@dataclass
class Config:
    vocab_size: int = 8003
    hidden: int = 500


class Language(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.body = nn.Linear(config.hidden, config.hidden)
        self.head = nn.Linear(config.hidden, config.vocab_size, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, ids, targets=None):
        x = F.gelu(self.body(self.tokens(ids)))
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, self.config.vocab_size), targets.view(-1))


def build_model():
    return Language(Config())


def example_inputs():
    ids = torch.zeros(32, 128, dtype=torch.long)
    return ids, ids
""",
    "train.py": IMPORTS
    + """
from model import Config, Language

for config in (Config(), Config(vocab_size=9001, hidden=20)):
    model = Language(config)
    ids = torch.arange(8).view(2, 4)
    logits, loss = model(ids, ids)
    loss.backward()
    one_hot = F.one_hot(ids, config.vocab_size)
    assert logits.shape == one_hot.shape
    assert logits.detach().view(-1).shape == one_hot.view(-1).shape  # of contiguous tensors only
    assert model(ids)[0].shape == (2, 1, config.vocab_size)
""",
}

OPTIONS = {
    "model.py": IMPORTS
    + """
import argparse


def options(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab-size", type=int, default=8003)
    parser.add_argument("--hidden", type=int, default=500)
    return parser.parse_args(argv)


class Tagger(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.tokens = nn.Embedding(args.vocab_size, args.hidden)
        self.rnn = nn.LSTM(args.hidden, args.hidden, batch_first=True)
        self.head, self.classes = nn.Linear(args.hidden, args.vocab_size), args.vocab_size

    def forward(self, ids):
        out, _ = self.rnn(self.tokens(ids))
        return F.log_softmax(self.head(out).view(-1, self.classes), dim=1)


def build_model():
    return Tagger(options([]))
"""
    + INPUTS,
    "train.py": IMPORTS
    + """
from model import Tagger, options

for argv in [], ["--vocab-size", "50", "--hidden", "6"], ["--vocab-size", "9001"]:
    args = options(argv)
    model = Tagger(args)
    ids = torch.arange(8).view(2, 4)
    F.nll_loss(model(ids).view(-1, args.vocab_size), ids.view(-1)).backward()
    model.rnn(model.tokens(ids), (torch.zeros(1, 2, args.hidden), torch.zeros(1, 2, args.hidden)))
""",
}


def train(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the script in this process, with the model as it is in the folder now."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    try:
        runpy.run_path(str(folder / "train.py"))
    finally:
        sys.modules.pop("model", None)


@pytest.mark.parametrize(
    ("program", "edits", "notes"),
    [
        pytest.param(
            CONSTANTS,
            [
                "nn.Linear(width, (vocabulary + 63) // 64 * 64, bias=False)",
                "WIDTH = 512",
                "VOCABULARY = 8003",
            ],
            [
                "note: train.py:12: also reads WIDTH    model.body(torch.randn(2, WIDTH))",
                "note: train.py:8: loads weights: ",
            ],
            id="constants",
        ),
        pytest.param(
            FIELDS,
            [
                "self.head(x)[..., :self.config.vocab_size].contiguous()",
                "self.head(x[:, [-1], :])[..., :self.config.vocab_size].contiguous()",
                "vocab_size: int = 8003",
                "hidden: int = 512",
            ],
            ["note: train.py:7: gives hidden itself, which stays as it is"],
            id="fields of a dataclass",
        ),
        pytest.param(
            OPTIONS,
            [
                "self.unpadded_vocab_size = args.vocab_size",
                "self.head(out)[..., :self.unpadded_vocab_size].view(-1, self.classes)",
                '"--vocab-size", type=int, default=8003',
                '"--hidden", type=int, default=512',
            ],
            ["note: train.py:12: also reads hidden"],
            id="options",
        ),
    ],
)
def test_a_program_runs_after_its_fixes(
    program: dict[str, str],
    edits: list[str],
    notes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in program.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    # Here the script itself shows that the model still runs; test_fix_models.py compares what models compute.
    monkeypatch.setattr(padding_check, "_MOST_FLOPS", 1e8)
    train(tmp_path, monkeypatch)
    flags = ["--isolated", "--gpu", "a100", "--precision", "fp16", "--unsafe-fixes"]
    result = CliRunner().invoke(
        cli, ["fix", "model.py:build_model", "train.py", *flags], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert result.stderr == "wrote model.py\n"
    assert "0 of" not in result.stdout
    assert (tmp_path / "train.py").read_text() == program["train.py"]
    edited = (tmp_path / "model.py").read_text()
    for part in edits:
        assert part in edited
    for note in notes:
        assert note in result.stdout
    train(tmp_path, monkeypatch)
