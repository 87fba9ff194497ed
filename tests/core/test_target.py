"""What counts as a model target, and so may be executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.core.target import is_model_target


@pytest.mark.parametrize(
    "text",
    [
        "model.py:build_model",
        "a b/ü.py:Net.build",
        "/abs/model.py:Net",
        "C:\\x\\model.py:Net",
        "pkg.mod:Net",
        "pkg:f",
    ],
)
def test_model_targets(text: str) -> None:
    assert is_model_target(text)


@pytest.mark.parametrize(
    "text",
    ["model.py", "src/", "src", "C:\\x\\model.py", "model.py:", ":f", "model.py:1f", "a-b:f", "", "m.py:a b"],
)
def test_paths(text: str) -> None:
    assert not is_model_target(text)


def test_a_file_of_exactly_this_name_is_read_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py:build").write_text("")
    assert not is_model_target("m.py:build")
