"""Notebooks are linted and fixed cell by cell, and nothing else of their JSON changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tclint.config.settings import Settings
from tclint.engine.check import check
from tclint.engine.fixes.sources import fix
from tclint.engine.report import Report
from tclint.report.words import place_text
from tclint.source.syntax.notebooks import read_notebook

SETUP = [
    "!pip install \\\n",
    "    torch\n",
    "%matplotlib inline\n",
    "cd /content\n",
    "import torch\n",
    "amp = torch.cuda.amp",
]
TRAIN = [
    "%%time\n",
    "listing = !ls\n",
    "scaler = torch.cuda.amp.GradScaler()\n",
    "for images in loader:\n",
    '    loss = model(images.cuda())  # "é"\tsum\n',
    "    scaler.scale(loss).backward()\n",
    "    scaler.step(optimizer)\n",
    "    total += loss.item()\n",
    "model?",
]
SHELL = ["%%bash\n", "for x in torch; do echo $x; done\n"]


def code(source: Any) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "outputs": [{"text": ["torch é\n"]}], "source": source}


def document(*sources: Any) -> dict[str, Any]:
    title = {"cell_type": "markdown", "metadata": {}, "source": ["# torch\n"]}
    return {"cells": [title, *map(code, sources)], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def written(folder: Path, content: Any, **options: Any) -> Path:
    path = folder / "train.ipynb"
    path.write_text(json.dumps(content, **options) + "\n", encoding="utf-8")
    return path


def linted(path: Path, *codes: str) -> Report:
    return check([str(path)], Settings(select=codes, cache=False))


def test_findings_say_cell_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, document(SETUP, SHELL, TRAIN), indent=1)
    (finding,) = linted(path, "RUN014").findings
    assert (finding.location.cell, finding.location.cell_line) == (4, 8)
    assert place_text(finding.location).endswith("train.ipynb:cell 4:8")
    line = path.read_text("utf-8").splitlines()[finding.location.line - 1]
    assert line[finding.location.column - 1 :].startswith("loss.item()")
    assert finding.location.end_column is not None
    assert line[: finding.location.end_column - 1].endswith("loss.item()")


@pytest.mark.parametrize(
    "options",
    [{"indent": 1, "ensure_ascii": False}, {"indent": 2}, {}, {"separators": (",", ":")}],
    ids=["as Jupyter writes it", "escaped", "one line", "compact"],
)
@pytest.mark.parametrize("joined", [False, True], ids=["lists", "strings"])
def test_fix_changes_the_cell_alone(tmp_path: Path, options: dict[str, Any], joined: bool) -> None:
    def form(source: list[str]) -> Any:
        return "".join(source) if joined else source

    before = document(form(SETUP), form(SHELL), form(TRAIN))
    path = written(tmp_path, before, **options)
    report = linted(path, "AMP004")
    outcome = fix(
        report, lambda contents: check([str(path)], report.settings, contents=contents), unsafe=False
    )
    (file,) = outcome.files
    fixed = [*TRAIN[:7], "    scaler.update()\n", *TRAIN[7:]]
    after = document(form(SETUP), form(SHELL), form(fixed))
    assert file.after == (json.dumps(after, **options) + "\n").encode()
    assert not outcome.report.findings


def test_suppressions_work_in_cells(tmp_path: Path) -> None:
    quiet = [line.replace("loss.item()", "loss.item()  # tclint: ignore[RUN014] small") for line in TRAIN]
    report = linted(written(tmp_path, document(quiet), indent=1), "RUN014")
    assert not report.findings
    assert [finding.location.cell for finding in report.suppressed] == [2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "no Jupyter notebook"),
        ({"cells": [{"torch": 1}]}, "no Jupyter notebook"),
        ({"cells": 3}, "no Jupyter notebook"),
        ({**document(TRAIN), "metadata": {"kernelspec": {"language": "R"}}}, "not Python"),
    ],
)
def test_what_cannot_be_read_is_an_error_if_it_was_named(tmp_path: Path, content: Any, reason: str) -> None:
    path = written(tmp_path, content)
    named = check([str(path)], Settings(cache=False))
    assert reason in named.errors[0].message
    found = check([str(tmp_path)], Settings(cache=False))
    skipped = [item.reason for item in found.skipped]
    assert [reason in one for one in skipped] == ([True] if "torch" in path.read_text() else [])
    assert not [*named.findings, *named.skipped, *found.findings, *found.errors]


def test_a_broken_cell_is_a_finding_only_where_the_notebook_was_named(tmp_path: Path) -> None:
    path = written(tmp_path, document(TRAIN, SHELL, ["x = 1\n", "for x in:\n"]))
    (finding,) = check([str(path)], Settings(cache=False)).findings
    assert finding.message.endswith("syntax error on line 2 of cell 4: invalid syntax.")
    assert (finding.code, finding.location.cell, finding.location.cell_line) == ("TCL003", 4, 2)
    for found in (
        check([str(tmp_path)], Settings(cache=False)),
        check([str(path)], Settings(cache=False, force_exclude=True)),
    ):
        (skipped,) = found.skipped
        assert skipped.reason == "a cell is not Python: syntax error on line 2 of cell 4: invalid syntax"
        assert not found.findings


def test_lines_without_a_change_stay_as_they_are() -> None:
    sources = (SETUP, SHELL, TRAIN, [], "", ["w = 1\n"], ["x = 1\ny = 2\n", 'z = "\U0001f600"'])
    raw = json.dumps(document(*sources), indent=1)
    notebook = read_notebook(raw.encode())
    assert notebook.rewritten(notebook.text) == raw
    assert notebook.rewritten(notebook.text.replace("# tclint cell 3\n", "")) is None
    lost = notebook.text.replace("pass  # tclint line 0\n", "", 1)
    assert notebook.rewritten(lost) is None
    changed = notebook.rewritten(notebook.text.replace("w = 1", "w = 10"))
    assert changed == raw.replace("w = 1", "w = 10")
    text_only = json.dumps({**document(), "nbformat": 4})
    assert read_notebook(text_only.encode()).rewritten("") == text_only


def test_fix_of_a_needless_suppression_changes_the_cell_alone(tmp_path: Path) -> None:
    path = written(tmp_path, document(SETUP, ["x = torch.ones(2)  # tclint: ignore[RUN014] small\n"]))
    report = check([str(path)], Settings(cache=False))
    (finding,) = report.findings
    assert (finding.code, finding.location.cell) == ("TCL002", 3)
    outcome = fix(
        report, lambda contents: check([str(path)], report.settings, contents=contents), unsafe=False
    )
    after = document(SETUP, ["x = torch.ones(2)\n"])
    assert outcome.files[0].after == (json.dumps(after) + "\n").encode()
