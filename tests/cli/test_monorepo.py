"""Several projects in one repository, each with a configuration of its own, linted from its root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

TRAIN = """\
import torch

scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
NET = """\
import torch
from torch import nn


def build():
    return nn.Linear(1021, 1021)


def example_inputs():
    return torch.zeros(4096, 1021)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root selects AMP; a/ ignores a rule of it, b/ excludes a file, b/inner says nothing of tclint."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    for folder in ("a", "b/inner", "c"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("train.py", "generated.py"):
            (tmp_path / folder / name).write_text(TRAIN)
        (tmp_path / folder / "net.py").write_text(NET)
    (tmp_path / "pyproject.toml").write_text('[tool.tclint]\nselect = ["AMP003"]\nfail-on = "never"\n')
    (tmp_path / "a" / "pyproject.toml").write_text(
        '[tool.tclint]\nignore = ["AMP003"]\ngpu = "h100"\nfail-on = "info"\nmodels = ["net.py:build"]\n'
    )
    (tmp_path / "b" / "pyproject.toml").write_text(
        '[tool.tclint]\nselect = ["AMP003"]\nexclude = ["generated.py"]\nprecision = "bf16"\n'
    )
    (tmp_path / "b" / "inner" / "pyproject.toml").write_text('[project]\nname = "inner"\n')
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], catch_exceptions=False)


def report(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--format", "json").stdout)
    assert not found["errors"]
    return found


def clipped(*arguments: str) -> set[str]:
    """Files with AMP003."""
    return {one["location"]["path"] for one in report(*arguments)["findings"] if one["code"] == "AMP003"}


def test_each_file_has_the_rules_of_its_nearest_file(repository: Path) -> None:
    assert clipped(".") == {"c/train.py", "c/generated.py", "b/inner/train.py"}
    assert clipped("a/train.py", "b/inner/train.py", "c/train.py") == {"b/inner/train.py", "c/train.py"}
    assert clipped("b") == {"b/inner/train.py"}
    assert {one["code"] for one in report("c", "a")["findings"]} > {"AMP003"}
    # A file that is named is read, and read once.
    assert clipped("b/inner/generated.py", "b") == {"b/inner/generated.py", "b/inner/train.py"}
    assert report(".")["summary"]["source_files"] == 8


def test_the_run_has_the_settings_of_the_working_directory(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(".").exit_code == 0
    assert run("a", "--fail-on", "info").exit_code == 1
    monkeypatch.chdir(repository / "a")
    assert run(".").exit_code == 1


def test_flags_and_a_named_file_win(repository: Path) -> None:
    assert clipped(".", "--select", "AMP003", "--ignore", "AMP014") >= {"c/train.py", "b/inner/train.py"}
    assert len(clipped(".", "--config", "pyproject.toml")) == 6
    assert len(clipped(".", "--isolated")) == 6


def test_models_are_priced_as_their_project_says(repository: Path) -> None:
    pytest.importorskip("torch")
    found = report("a/net.py:build", "b/inner/net.py:build", "c/net.py:build", "--timeout", "100")
    assert {
        entry["target"]: (entry["precision"], next(iter(entry["metrics"]))) for entry in found["entries"]
    } == {
        "a/net.py:build": ("fp16", "h100-sxm5-80gb"),
        "b/inner/net.py:build": ("bf16", "a100-sxm4-80gb"),
        "c/net.py:build": ("fp16", "a100-sxm4-80gb"),
    }
    # Which models are built, the run's own file says.
    assert report("--models")["entries"] == []
    declared = report("--models", "--config", "a/pyproject.toml")
    assert [entry["target"] for entry in declared["entries"]] == ["a/net.py:build"]


def test_what_the_root_excludes_stays_out(repository: Path) -> None:
    (repository / "pyproject.toml").write_text('[tool.tclint]\nselect = ["AMP003"]\nexclude = ["b/"]\n')
    assert clipped(".") == {"c/train.py", "c/generated.py"}


@pytest.mark.parametrize(
    ("named", "exclude", "read"),
    [
        (("b/inner/generated.py", "b/inner/train.py"), "", "b/inner/train.py"),
        (("b/inner/train.py", "c/train.py"), 'exclude = ["b/"]\n', "c/train.py"),
    ],
)
def test_what_is_excluded_stays_out_by_name_where_told(
    repository: Path, named: tuple[str, ...], exclude: str, read: str
) -> None:
    with (repository / "pyproject.toml").open("a") as file:
        file.write(exclude)
    assert clipped(*named) == set(named)
    assert clipped(*named, "--force-exclude") == {read}


def test_a_mistake_in_a_nested_file_is_named(repository: Path) -> None:
    (repository / "a" / "pyproject.toml").write_text('[tool.tclint]\ngpux = "h100"\n')
    result = run(".")
    assert result.exit_code == 2
    assert "a/pyproject.toml:2: 'gpux' is not a key" in result.stderr


def test_fixes_and_baselines_hold_for_each_project(repository: Path) -> None:
    assert run("baseline", "write", ".").exit_code == 0
    accepted = json.loads((repository / "tclint-baseline.json").read_text())["findings"]
    assert {one["path"] for one in accepted if one["code"] == "AMP003"} == clipped(".")
    before = (repository / "tclint-baseline.json").read_bytes()
    assert clipped(".", "--baseline", "tclint-baseline.json") == set()
    assert (repository / "tclint-baseline.json").read_bytes() == before
    assert run("fix", ".").exit_code == 0
    assert "unscale_" in (repository / "c" / "train.py").read_text()
    assert (repository / "a" / "train.py").read_text() == TRAIN
    assert (repository / "b" / "inner" / "generated.py").read_text() == TRAIN
