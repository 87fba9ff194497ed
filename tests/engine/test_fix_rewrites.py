"""Edits of fixes that change no size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.core.finding import Finding, Location
from tclint.engine.fixes.files import contents_of
from tclint.engine.fixes.rewrites import NO_EDIT, rewrites
from tclint.graph.ops import Site

MODEL = """\
import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        )


def build_model():
    return Net()
"""
BUILDER = 14


def rewritten(folder: Path, *codes: str, text: str = MODEL, line: int = BUILDER) -> str:
    """The file with the fixes of these rules made together, or why one is not."""
    path = folder / "model.py"
    path.write_text(text)
    edits = []
    for code in codes:
        finding = Finding(code, "a-rule", "info", "high", "", Location(str(path), 8))
        place = (str(path), 8)
        made = rewrites(finding, {place}, Site(str(path), line), {str(path): text}, Settings())
        if isinstance(made, str):
            return made
        edits += made
    contents = contents_of({str(path): text}, edits)
    assert contents is not None
    return contents[str(path)].decode()


def test_what_the_function_returns_is_converted_and_compiled(tmp_path: Path) -> None:
    converted = "return Net().to(memory_format=torch.channels_last)"
    assert rewritten(tmp_path, "FMT001") == MODEL.replace("return Net()", converted)
    assert "return torch.compile(Net())\n" in rewritten(tmp_path, "ARC016")
    both = rewritten(tmp_path, "FMT001", "ARC016")
    assert "return torch.compile(Net().to(memory_format=torch.channels_last))\n" in both


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("Net(), torch.zeros(1)", "return Net().to(memory_format=torch.channels_last), torch.zeros(1)"),
        ("Net() if 1 else None", "return (Net() if 1 else None).to(memory_format=torch.channels_last)"),
    ],
)
def test_the_model_is_what_is_converted(returned: str, expected: str, tmp_path: Path) -> None:
    text = MODEL.replace("return Net()", f"return {returned}")
    assert expected in rewritten(tmp_path, "FMT001", text=text)


def test_a_class_returns_nothing_to_convert(tmp_path: Path) -> None:
    assert "the target is not a function" in rewritten(tmp_path, "FMT001", line=5)
    other_name = MODEL.replace("import torch\n", "import torch as th\n")
    assert "does not import torch by that name" in rewritten(tmp_path, "FMT001", text=other_name)
    two = MODEL + "\n\ndef other(x):\n    if x:\n        return Net()\n    return Net()\n"
    assert "model.py:20, 21" in rewritten(tmp_path, "FMT001", text=two, line=18)


def test_codemods_of_source_rules_make_their_fixes(tmp_path: Path) -> None:
    assert "nn.Conv2d(3, 64, 3, padding=1, bias=False)" in rewritten(tmp_path, "ARC001")
    unknown = MODEL.replace("bias", "").replace("nn.BatchNorm2d(64)", "nn.Identity()")
    why = rewritten(tmp_path, "ARC001", text=unknown)
    assert why.startswith("its edit needs a call of the layer without `bias`")
    assert why.endswith("model.py:8 differs")


def test_other_rules_have_no_edit(tmp_path: Path) -> None:
    assert rewritten(tmp_path, "ARC004") == NO_EDIT
