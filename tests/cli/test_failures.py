"""Files on which tclint itself fails: an error where the user named them, a line where they were found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli

LOOP = (
    "import torch\nscaler = torch.amp.GradScaler()\nfor x in loader:\n    scaler.scale(net(x)).backward()\n"
)
CONFIGURATION = "output_dir: out\nper_device_train_batch_size: 3\nbf16: false\nfp16: false\n"
PARTS = {
    "train.py": ["tclint.source.run.program.run", "tclint.source.syntax.walk.walk"],
    "train.yaml": ["tclint.source.recipes.running.program_of"],
}
FILES = {"train.py": LOOP, "train.yaml": CONFIGURATION}


def fails(*_: Any, **__: Any) -> None:
    raise ValueError("no such thing")


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, parts in PARTS.items() for part in parts])
def test_a_named_file_is_an_error_and_a_found_one_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(f"{FILES[name]}# without {part}\n")
    (tmp_path / "other.py").write_text("import torch\n")
    monkeypatch.setattr(part, fails)

    def checked(*arguments: str) -> tuple[int, Any]:
        result = CliRunner().invoke(cli, ["check", *arguments, "--isolated", "--format", "json"])
        return result.exit_code, json.loads(result.stdout)

    why = "tclint failed on it with ValueError: no such thing; please report this"
    # The second time nothing must come from what the first one stored.
    for _ in range(2):
        code, report = checked(name, "other.py")
        assert code == 2
        assert [error["message"] for error in report["errors"]] == [f"{name} could not be linted: {why}."]
        assert report["skipped"] == []
    for arguments in (["."], [name, "other.py", "--force-exclude"]):
        code, report = checked(*arguments)
        assert code == 0
        assert report["errors"] == []
        assert [(item["path"], item["reason"]) for item in report["skipped"]] == [(name, why)]
