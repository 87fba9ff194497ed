"""Comments that silence, or fail to, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

TRAIN = """\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)COMMENT
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--isolated"], catch_exceptions=False)


def found(comment: str, *arguments: str) -> list[str]:
    """Codes on the line of the comment."""
    Path("train.py").write_text(TRAIN.replace("COMMENT", comment))
    report = json.loads(run(".", "--format", "json", *arguments).stdout)
    return sorted(one["code"] for one in report["findings"] if one["location"]["line"] == 6)


@pytest.mark.parametrize(
    ("comment", "codes"),
    [
        ("", ["AMP003"]),
        ("  # tclint: ignore[AMP003]", []),
        ("  # tclint: ignore", []),
        ("  # tclint: ignore the norm is logged only", []),
        ("  # a note  # tclint: ignore[AMP003] reason", []),
        ("  # noqa: E501 # tclint: ignore[clip-before-unscale]", []),
        ("  # tclint: ignore[AMP999]  # tclint: ignore[AMP003]", ["TCL004"]),
        ("  # written as `# tclint: ignore[AMP003]`", ["AMP003"]),
        ("  # tclint: ignore[AMP003, AMP999]", ["TCL004"]),
        ("  # tclint: ignore[AMP999]", ["AMP003", "TCL004"]),
        ("  # tclint: ignore AMP003", ["AMP003", "TCL004"]),
        ("  # tclint: ignore: AMP003, AMP001 reason", ["AMP003", "TCL004"]),
        ("  # tclint: ignore AMP014", ["AMP003", "TCL004"]),
        ("  # tclint: ignore AMP", ["AMP003", "TCL004"]),
        ("  # tclint: ignore clip-before-unscale", ["AMP003", "TCL004"]),
        ("  # tclint: ignore[]", ["AMP003", "TCL004"]),
        ("  # tclint: ignore[AMP003", ["AMP003", "TCL004"]),
        ("  # tclint: disable=AMP003", ["AMP003", "TCL004"]),
        ("  # tclint: ignore-next-line[AMP003]", ["AMP003", "TCL004"]),
        ("  # tclint: noqa", ["AMP003", "TCL004"]),
    ],
)
def test_what_is_silenced_and_what_is_malformed(repository: Path, comment: str, codes: list[str]) -> None:
    kept = [code for code in found(comment) if code in ("AMP003", "TCL004")]
    assert kept == codes


def test_it_is_selected_and_ignored_as_rules_are(repository: Path) -> None:
    wrong = "  # tclint: ignore AMP014"
    assert found(wrong, "--select", "AMP003") == ["AMP003"]
    assert found(wrong, "--select", "AMP003", "--extend-select", "TCL004") == ["AMP003", "TCL004"]
    assert found(wrong, "--select", "AMP003,invalid-suppression") == ["AMP003", "TCL004"]
    assert found(wrong, "--select", "TCL004") == ["TCL004"]
    assert "TCL004" in found(wrong, "--select", "ALL")
    assert "TCL004" not in found(wrong, "--ignore", "TCL004")
    config = repository / "own.toml"
    config.write_text('[tool.tclint]\n[[tool.tclint.overrides]]\npaths = ["train.py"]\nselect = ["AMP003"]\n')
    result = CliRunner().invoke(cli, [".", "--config", str(config), "--format", "concise"])
    assert ("AMP003" in result.stdout, "TCL004" in result.stdout) == (True, False)


def test_it_says_what_to_write_and_a_fix_writes_it(repository: Path) -> None:
    found("  # note  # tclint: ignore AMP003, AMP014 reason")
    result = run("train.py", "--select", "TCL004", "--format", "concise")
    assert result.exit_code == 1
    assert (
        "train.py:6:70: warning TCL004 [*] This comment silences nothing. Rules stand in brackets:"
        in result.stdout
    )
    assert "ignore[AMP003, AMP014]." in result.stdout
    assert run("fix", "train.py", "--select", "TCL004").exit_code == 0
    assert "1.0)  # note  # tclint: ignore[AMP003, AMP014] reason\n" in Path("train.py").read_text()
    found("  # tclint: ignore[AMPO03]")
    assert "No rule is called 'AMPO03'. Did you mean 'AMP0" in run("train.py", "--format", "concise").stdout
    assert "TCL004" in run("explain", "invalid-suppression").stdout


def test_what_silenced_nothing_goes_and_the_note_before_it_stays(repository: Path) -> None:
    (repository / "a.py").write_text("import torch\nx = 1  # note  # tclint: ignore[AMP003]\n")
    run("fix", "a.py")
    assert (repository / "a.py").read_text() == "import torch\nx = 1  # note\n"


def test_a_model_traced_alone_has_its_comments_read(repository: Path) -> None:
    pytest.importorskip("torch")
    (repository / "net.py").write_text(
        "import torch\nfrom torch import nn\n\ndef build():\n"
        "    return nn.Linear(1021, 1021)  # tclint: ignore DIM001\n\n"
        "def example_inputs():\n    return torch.zeros(4096, 1021)\n"
    )
    stdout = run("net.py:build", "--gpu", "a100", "--format", "concise").stdout
    assert "DIM001" in stdout
    assert "net.py:5:35: warning TCL004 [*] This comment silences nothing." in stdout
