"""`tclint explain CODE --at FILE:LINE`: what a rule has to say of a line, and why it is silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli

PROGRAM = """import torch
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    {unscale}
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
TRAINER = """from transformers import BertForSequenceClassification, Trainer, TrainingArguments

model = BertForSequenceClassification.from_pretrained("bert-base-uncased")

args = TrainingArguments(output_dir="x")
Trainer(model=model, args=args, train_dataset=None).train()
"""


def explained(folder: Path, at: str, unscale: str = "scaler.unscale_(optimizer)") -> str:
    (folder / "train.py").write_text(PROGRAM.format(unscale=unscale))
    result = CliRunner().invoke(cli, ["explain", "AMP003", "--at", f"{folder}/{at}", "--isolated"])
    return " ".join(result.output.split())


def test_a_silent_rule_says_why(tmp_path: Path) -> None:
    said = explained(tmp_path, "train.py:6")
    assert "is silent about" in said
    assert "gradients are unscaled between the backward pass of line 4 and it" in said
    assert "clip: torch.nn.utils.clip_grad_norm_(" in said
    assert "in the loop of line 3" in said


def test_a_rule_that_fires_says_what(tmp_path: Path) -> None:
    said = explained(tmp_path, "train.py:6", "pass")
    assert "reports" in said
    assert "is silent" not in said


def test_a_line_can_follow_the_rule_without_an_option(tmp_path: Path) -> None:
    said = explained(tmp_path, "train.py:6")
    at = f"{tmp_path}/train.py:6"
    result = CliRunner().invoke(cli, ["explain", "AMP003", at, "--isolated"])
    assert " ".join(result.output.split()) == said


def test_a_loop_of_a_framework_has_no_line_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    at = f"{tmp_path}/train.py:6"
    result = CliRunner().invoke(cli, ["explain", "AMP016", at, "--isolated"])
    said = " ".join(result.output.split())
    assert "in a loop of transformers" in said
    assert "in the loop of line" not in said


def test_what_is_not_listed_is_counted(tmp_path: Path) -> None:
    def events(count: int) -> str:
        clips = "; ".join(
            f"torch.nn.utils.clip_grad_norm_(model.parameters(), {norm}.0)" for norm in range(count)
        )
        (tmp_path / "train.py").write_text(PROGRAM.format(unscale=clips))
        result = CliRunner().invoke(cli, ["explain", "AMP003", f"{tmp_path}/train.py:5", "--isolated"])
        return result.output

    # Those of a clip, and what gets its parameters.
    assert events(11).count("clip:") == 11
    assert "more" not in events(11)
    assert events(15).count("clip:") == 11
    assert events(15).endswith("\n  and 4 more\n")


def test_a_line_that_no_rule_asks_about_is_said_to_be_one(tmp_path: Path) -> None:
    said = explained(tmp_path, "train.py:1")
    assert "Nothing that rules ask about happens on this line" in said
    assert "When it does not apply:" in said
    assert "When it does not apply:" not in explained(tmp_path, "train.py:6")


def test_a_page_that_speaks_of_a_launcher_is_named(tmp_path: Path) -> None:
    def asked(name: str, page: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for file, text in {"pyproject.toml": "", "README.md": page, "train.py": TRAINER}.items():
            (folder / file).write_text(text)
        at = f"{folder}/train.py:5"
        result = CliRunner().invoke(cli, ["explain", "AMP016", "--at", at, "--isolated"])
        return " ".join(result.output.split())

    assert "reports" in asked("plain", "Start it with `python train.py`.\n")
    said = asked("launched", "Start it with `accelerate launch train.py`.\n")
    assert "README.md speaks of a launcher or of mixed precision, which may choose it from outside" in said


FLOAT32 = """import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 128, 3), nn.ReLU(), nn.Conv2d(128, 128, 3)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(samples, 64):
    loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "reports"),
        ({".cuda()": ""}, "it is not known to run on a GPU"),
        ({"128": "32"}, "it trains no layers that are known to be large enough to gain"),
        (
            {"    loss =": "    with torch.autocast('cuda'):\n        loss ="},
            "that uses mixed precision: line 7",
        ),
        ({"3)).cuda()": "3)).cuda().half()"}, "that computes in 16 bits: line 4"),
        ({"3)).cuda()": "3)).cuda().double()"}, "that computes in float64: line 4"),
        ({"import torch\n": "import torch, gym\n"}, "a package for numerical work or tiny networks"),
        ({"\nnet": "from torch.amp import autocast\nnet"}, "that names autocast or GradScaler, in train.py"),
        ({"    optimizer.step()\n": ""}, "it belongs to no step of an optimizer that tclint knows of"),
        (
            {
                "import nn\n": "import nn\nfrom ours import maybe\n",
                "    loss =": "    with maybe():\n        loss =",
            },
            "it runs in a context that may choose a precision: line 8",
        ),
        ({"for x, y in torch.utils.data.DataLoader(samples, 64)": "for _ in range(9)"}, "on the same data"),
        ({"net(x.cuda())": "net.run(x.cuda())"}, "it leads to no network whose layers tclint knows"),
    ],
)
def test_what_keeps_a_training_from_being_one_in_float32_is_said(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    text = FLOAT32
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "train.py").write_text(text)
    line = 1 + next(number for number, one in enumerate(text.splitlines()) if "backward" in one)
    result = CliRunner().invoke(cli, ["explain", "AMP016", f"{tmp_path}/train.py:{line}", "--isolated"])
    said = " ".join(result.output.split())
    assert words in said
    assert ("is silent about" in said) == (words != "reports")


def test_a_framework_whose_precision_was_chosen_is_said_to_have_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER.replace('output_dir="x"', 'output_dir="x", bf16=False'))
    result = CliRunner().invoke(cli, ["explain", "AMP016", f"{tmp_path}/train.py:5", "--isolated"])
    assert "it is given a precision" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["AMP003", "--at", "train.py"], "is no FILE:LINE"),
        (["AMP003", "train.py"], "is no FILE:LINE"),
        (["AMP003", "--at", "missing.py:3"], "There is no file or folder 'missing.py'"),
        (["DIM001", "--at", "train.py:3"], "is a rule on traced models"),
    ],
)
def test_wrong_calls_get_one_sentence(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["explain", *arguments])
    assert result.exit_code != 0
    assert words in f"{result.output}{result.exception}"


def test_a_release_that_lacks_the_fix_is_the_reason(tmp_path: Path) -> None:
    text = """import torch
from torch import nn
net = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(samples, 64):
    nn.functional.mse_loss(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""
    for release, said in (("1.1.0", "is silent about"), ("2.4.0", "reports")):
        folder = tmp_path / release
        folder.mkdir()
        (folder / "train.py").write_text(text)
        (folder / "requirements.txt").write_text(f"torch=={release}\n")
        at = f"{folder}/train.py:6"
        result = CliRunner().invoke(cli, ["explain", "AMP016", "--at", at, "--isolated"])
        shown = " ".join(result.output.split())
        assert said in shown
        assert "its fix needs torch 1.6, and" in shown or release != "1.1.0"
        assert ("requirements.txt:1 asks for torch==1.1.0." in shown) == (release == "1.1.0")


@pytest.mark.parametrize(
    ("end", "configuration", "words"),
    [
        ("", "", "reports"),
        ("  # tclint: ignore[AMP003]", "", "is silent about {at}: a comment silences it."),
        ("", 'ignore = ["AMP003"]', "is silent about {at}: the settings leave it out for this file."),
        (
            "",
            '[[tool.tclint.overrides]]\npaths = ["train.py"]\nignore = ["AMP003"]',
            "is silent about {at}: the settings leave it out for this file.",
        ),
    ],
)
def test_what_a_check_does_not_report_is_not_reported(
    tmp_path: Path, end: str, configuration: str, words: str
) -> None:
    script, config = tmp_path / "train.py", tmp_path / "tclint.toml"
    script.write_text(PROGRAM.replace("1.0)\n", f"1.0){end}\n").format(unscale="pass"))
    config.write_text(f"[tool.tclint]\n{configuration}")
    at = f"{script}:6"
    said = CliRunner().invoke(cli, ["explain", "AMP003", at, "--config", str(config)]).output
    assert words.format(at=at) in " ".join(said.split())
    checked = CliRunner().invoke(cli, ["check", str(script), "--config", str(config)]).output
    assert ("AMP003" in checked) == (words == "reports")


def test_a_file_without_the_words_of_a_rule_is_said_to_lack_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nscaler = torch.amp.GradScaler()\n")
    said = CliRunner().invoke(cli, ["explain", "AMP003", f"{tmp_path}/train.py:2", "--isolated"]).output
    assert "nothing in the file is what it looks for, such as" in " ".join(said.split())


def test_a_file_that_its_script_does_not_read_is_run_by_itself(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("def later():\n    import engine\n\nprint('started')\n")
    loop = PROGRAM.format(unscale="pass").replace(
        "for batch", "def train(model, optimizer, loader):\n  for batch"
    )
    (tmp_path / "engine.py").write_text(loop.replace("\n    ", "\n        "))
    at = f"{tmp_path}/engine.py:7"
    checked = CliRunner().invoke(cli, ["check", f"{tmp_path}/engine.py", "--isolated"])
    assert "engine.py:7" in checked.output
    said = CliRunner().invoke(cli, ["explain", "AMP003", at, "--isolated"]).output
    assert "reports" in said, said
