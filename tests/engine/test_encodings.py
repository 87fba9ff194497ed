"""Files in other encodings than UTF-8, and what is no regular file, on the command line."""

from __future__ import annotations

import codecs
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tclint.cli.main import cli

TRAIN = """\
# café
import torch
from torch.nn.utils import clip_grad_norm_

größe, scaler = 1.0, torch.amp.GradScaler("cuda")
for batch in loader:
    scaler.scale(model(batch)).backward()
    clip_grad_norm_(model.parameters(), größe)
    scaler.step(optimizer)
    scaler.update()
"""
COOKIE = "# -*- coding: latin-1 -*-\n"
UTF_16 = codecs.BOM_UTF16_LE + TRAIN.encode("utf-16-le")
WRITTEN = {
    "utf8_mark.py": (codecs.BOM_UTF8 + TRAIN.encode(), "utf-8-sig"),
    "utf16_le.py": (UTF_16, "utf-16"),
    "utf16_be.py": (codecs.BOM_UTF16_BE + TRAIN.encode("utf-16-be"), "utf-16"),
    "latin.py": ((COOKIE + TRAIN).encode("latin-1"), "latin-1"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--select", "AMP003", "--isolated"], catch_exceptions=False)


def codes(*arguments: str) -> list[tuple[str, str, int]]:
    found = json.loads(run(*arguments, "--format", "json").stdout)
    assert not found["skipped"]
    return [(one["code"], one["location"]["path"], one["location"]["line"]) for one in found["findings"]]


@pytest.mark.parametrize("name", WRITTEN)
def test_they_are_linted_shown_and_fixed_in_their_own(folder: Path, name: str) -> None:
    data, encoding = WRITTEN[name]
    (folder / name).write_bytes(data)
    line = 9 if name == "latin.py" else 8
    assert codes(".") == codes(name) == [("AMP003", name, line)]
    result = run(name)
    assert result.exit_code == 1
    assert "clip_grad_norm_(model.parameters(), größe)" in result.stdout

    assert run("fix", name).exit_code == 0
    after = (folder / name).read_bytes()
    assert after[:2] == data[:2]
    assert "café" in after.decode(encoding)
    assert "scaler.unscale_(optimizer)" in after.decode(encoding)
    assert codes(name) == []


def test_comments_silence_in_them(folder: Path) -> None:
    text = TRAIN.replace("größe)", "größe)  # tclint: ignore[AMP003] no matter")
    (folder / "train.py").write_bytes(codecs.BOM_UTF16_LE + text.encode("utf-16-le"))
    assert codes("train.py") == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            UTF_16[:-1],
            "1:1: error TCL003 Python cannot read this file, and no rule looked at it: it is ",
        ),
        (("# coding: klingon\n" + TRAIN).encode(), "unknown encoding: klingon in its first lines"),
        (("# coding: ascii\n" + TRAIN).encode(), "it is not ASCII (byte 21)"),
    ],
)
def test_what_is_not_in_the_encoding_that_it_claims_is_an_error(folder: Path, data: bytes, said: str) -> None:
    (folder / "train.py").write_bytes(data)
    for target in ("train.py", "."):
        result = run(target, "--format", "concise")
        assert result.exit_code == 1
        assert said in result.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_only_regular_files_are_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    (folder / "zero.py").symlink_to("/dev/zero")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    assert codes(".") == [("AMP003", "train.py", 8)]
    result = run("pipe.py", "train.py")
    assert result.exit_code == 2
    assert "'pipe.py' is no regular file" in result.stdout + result.stderr
    assert "AMP003" in result.stdout
