"""The user's own frameworks: what they silence, and what is said about bad files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.engine.source_pass import lint
from tclint.source.names.frameworks import names
from tclint_rules.scaling.loss_scaling import Fp16AutocastNoScaler

TRAIN = """\
import torch
import house_trainer

for batch in loader:
    with torch.autocast("cuda"):
        loss = model(batch)
    loss.backward()
    optimizer.step()
"""


def findings(folder: Path, extension: str | None) -> int:
    (folder / "train.py").write_text(TRAIN)
    settings = Settings()
    if extension is not None:
        (folder / "house.toml").write_text(extension)
        settings = Settings(frameworks=(str(folder / "house.toml"),))
    return len(lint([str(folder / "train.py")], [Fp16AutocastNoScaler()], settings).findings)


def test_a_framework_of_the_user_silences_what_it_does_itself(tmp_path: Path) -> None:
    assert findings(tmp_path, None) == 1
    assert findings(tmp_path, '[[framework]]\nname = "House"\nmodules = ["house_trainer"]\n') == 0
    assert findings(tmp_path, '[[framework]]\nname = "Other"\nmodules = ["other_trainer"]\n') == 1
    assert findings(tmp_path, '[backward]\nnot_tensors = ["loss"]\n') == 0
    # What one run adds is gone in the next.
    assert findings(tmp_path, None) == 1
    assert names().framework_of("house_trainer") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("framework = [", "not valid TOML"),
        ("[frameworks]\nx = 1\n", "not a table of frameworks.toml"),
        ("[[framework]]\nmodules = ['x']\n", "does not have the form"),
        ("[backward]\nnot_tensors = 'loss'\n", "must be a list"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        findings(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    settings = Settings(frameworks=(str(tmp_path / "no.toml"),))
    with pytest.raises(UsageError, match=r"no\.toml"):
        lint([str(tmp_path / "train.py")], [Fp16AutocastNoScaler()], settings)
