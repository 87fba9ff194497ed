"""Files that cannot be looked at: an error where the user named them, a line where they were found."""

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


def forbids(*_: Any, **__: Any) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(
    ("name", "part", "failure", "why"),
    [
        *(
            (name, part, fails, "tclint failed on it with ValueError: no such thing; please report this")
            for name, parts in PARTS.items()
            for part in parts
        ),
        ("train.py", "tclint.engine.sources.lint._read", forbids, "it cannot be read (Permission denied)"),
        (
            "train.yaml",
            "tclint.engine.sources.recipes._read",
            forbids,
            "it cannot be read (Permission denied)",
        ),
    ],
)
def test_a_named_file_is_an_error_and_a_found_one_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str, failure: Any, why: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(f"{FILES[name]}# without {part}\n")
    monkeypatch.setattr(part, failure)

    def checked(*arguments: str) -> tuple[int, Any]:
        result = CliRunner().invoke(cli, ["check", *arguments, "--isolated", "--format", "json"])
        return result.exit_code, json.loads(result.stdout)

    # The second time nothing must come from what the first one stored.
    for _ in range(2):
        code, report = checked(name)
        assert code == 2
        assert [error["message"] for error in report["errors"]] == [f"{name} could not be linted: {why}."]
        assert report["skipped"] == []
    for arguments in (["."], [name, "--force-exclude"]):
        code, report = checked(*arguments)
        assert code == 0
        assert report["errors"] == []
        assert [(item["path"], item["reason"]) for item in report["skipped"]] == [(name, why)]


@pytest.mark.parametrize("name", FILES)
def test_debug_shows_where_tclint_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(FILES[name])
    monkeypatch.setattr(PARTS[name][0], fails)
    for flags, shows in ((["--debug"], True), ([], False)):
        result = CliRunner().invoke(cli, ["check", name, "--isolated", "--no-cache", *flags])
        assert result.exit_code == 2
        assert ("in fails" in result.stderr) is shows
