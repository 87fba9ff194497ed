"""The tutorial's commands print what it shows, in order, on its own two files; so does the page on fixes.

To renew what is shown: TCLINT_RENEW_TUTORIAL=1 pytest tests/project/test_tutorial.py
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torch.nn.functional")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
_BLOCK = re.compile(r"(```console\n\$ tclint ([^\n]*)\n)(.*?)(```)", re.DOTALL)


def test_every_command_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lm.py", "train.py"):
        shutil.copy(ROOT / "fixtures" / "tutorial" / name, tmp_path)
    monkeypatch.chdir(tmp_path)

    def printed(block: re.Match[str]) -> str:
        head, arguments, _, fence = block.groups()
        return f"{head}{CliRunner().invoke(cli, arguments.split()).output.rstrip()}\n{fence}"

    page = PAGE.read_text(encoding="utf-8")
    renewed = _BLOCK.sub(printed, page)
    if os.environ.get("TCLINT_RENEW_TUTORIAL"):
        PAGE.write_text(renewed, encoding="utf-8")
    assert len(_BLOCK.findall(page)) >= 6
    assert renewed == page
    after = re.findall(r"a100-sxm4-80gb +(\d+) ms", page)
    assert f"predicted to take {after[-1]} ms instead of {after[-2]}" in page
    _trains(tmp_path / "lm.py")


def test_the_page_on_fixes_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = ROOT / "docs" / "how-to" / "fixes.md"
    text = page.read_text(encoding="utf-8")
    block = re.search(r"(```text\n\$ tclint ([^\n]*)\n)(.*?)(```)", text, re.DOTALL)
    assert block is not None
    head, arguments, _, fence = block.groups()
    renewed = f"{head}{CliRunner().invoke(cli, arguments.split()).output.rstrip()}\n{fence}"
    if os.environ.get("TCLINT_RENEW_TUTORIAL"):
        page.write_text(text.replace(block.group(), renewed), encoding="utf-8")
    assert renewed == block.group()


def _trains(file: Path) -> None:
    """The fixed model, at small sizes, takes a step with logits of the vocabulary that it was asked for."""
    lm: dict[str, Any] = {"__name__": "lm"}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), lm)
    model = lm["LanguageModel"](vocabulary=35, width=24, heads=2, layers=1, context=16)
    logits = model(torch.randint(35, (2, 16)))
    assert logits.shape == (2, 16, 35)
    functional.cross_entropy(logits.view(-1, 35), torch.randint(35, (32,))).backward()
    assert model.head.weight.grad.shape == (64, 24)
