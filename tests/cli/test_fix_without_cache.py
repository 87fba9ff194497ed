"""`--no-cache --fix`: the rounds of a command share what they parsed, and leave the user's cache alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tclint.source.syntax.cache as tables_cache
from tclint.cli.main import cli

TRAINING = """
import torch

scaler = torch.cuda.amp.GradScaler()
with torch.cuda.amp.autocast():
    pass
"""


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_users_cache_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    stored: list[Path] = []
    store = tables_cache.write_bytes_atomically

    def spy(path: str, data: bytes) -> None:
        stored.append(Path(path))
        store(path, data)

    monkeypatch.setattr(tables_cache, "write_bytes_atomically", spy)
    (tmp_path / "train.py").write_text(TRAINING)
    arguments = ["train.py", "--fix", "--unsafe-fixes", "--select", "AMP"]
    ran = CliRunner().invoke(
        cli, arguments if is_kept else [*arguments, "--no-cache"], catch_exceptions=False
    )
    assert "torch.amp.autocast(" in (tmp_path / "train.py").read_text(), ran.output
    assert any(path.suffix == ".tables" for path in stored)
    assert (tmp_path / "cache").exists() == is_kept
    assert all(path.exists() == is_kept for path in stored)
