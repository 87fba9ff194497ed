"""A class whose forward is missing or only says so: the message tells what to name instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint import check
from tclint.config.settings import Settings

pytest.importorskip("torch")

POLICY = """
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, seen=4, moves=3):
        super().__init__()
        self.torso = nn.Linear(seen, 16)
        self.head = nn.Linear(16, moves)
        self.tau = 1.0

    def forward({parameters}):
        {body}

    def cool(self, tau):
        self.tau = tau

    def play(self, seen):
        return self.head(self.torso(seen).relu()) / self.tau
"""


def message_of(tmp_path: Path, text: str, name: str = "Policy") -> str:
    (tmp_path / "policy.py").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    [error] = check(f"{tmp_path / 'policy.py'}:{name}", Settings(cache=False)).errors
    return error.message


@pytest.mark.parametrize("parameters", ["self", "self, x", "self, *args, **kwargs"])
@pytest.mark.parametrize("body", ["raise NotImplementedError", "raise NotImplementedError('use play')"])
def test_a_forward_that_is_left_out(tmp_path: Path, parameters: str, body: str) -> None:
    message = message_of(tmp_path, POLICY.format(parameters=parameters, body=body))
    assert "is left out" in message
    assert "its layers run in play:" in message
    assert "`return self.model.play(seen)`" in message


def test_a_class_without_forward(tmp_path: Path) -> None:
    text = POLICY.replace("def forward", "def explain").format(parameters="self", body="return None")
    message = message_of(tmp_path, text)
    assert "which has no forward to trace; its layers run in play:" in message


def test_what_a_layer_lacks_is_another_error(tmp_path: Path) -> None:
    inner = "class Bare(nn.Module):\n    def forward(self, x):\n        raise NotImplementedError\n\n\n"
    text = POLICY.format(parameters="self, seen", body="return self.bare(self.play(seen))")
    text = text.replace("self.tau = 1.0", "self.bare = Bare()").replace(
        "class Policy", f"{inner}class Policy"
    )
    text = text.replace(" / self.tau", "")
    message = message_of(tmp_path, text)
    assert "raised NotImplementedError in bare (Bare)" in message
