"""Results in a session: their short form, as tables of pandas, and in notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tclint
from tclint.core.errors import UsageError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(1000, 4001)
        self.out = nn.Linear(4001, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.wide(x)))


@pytest.fixture(scope="module")
def graph() -> tclint.graph.ops.Graph:
    return tclint.trace(Net(), torch.empty(4096, 1000))


@pytest.fixture(scope="module")
def report() -> tclint.engine.report.Report:
    return tclint.check(Net(), tclint.Settings(inputs=("4096,1000",), gpus=("a100", "h100")))


def test_short_forms(graph, report) -> None:
    assert repr(graph) == "<Graph: Net, 3 ops, 8.01 M parameters, inputs float32[4096, 1000]>"
    estimate = tclint.estimate(graph, gpu="a100")
    assert repr(estimate).startswith("<Estimate: ")
    assert f"on a100-sxm4-80gb, fp16, train, {len(estimate.kernels)} kernels>" in repr(estimate)
    assert repr(report) == "<Report: 1 model, 1 finding>"


def test_frames(graph, report) -> None:
    pytest.importorskip("pandas")
    findings = tclint.to_frame(report)
    assert len(findings) == sum(len(finding.effect.per_gpu) or 1 for finding in report.findings)
    first = findings[findings.code == "DIM001"].set_index("gpu")
    (dim,) = (finding for finding in report.findings if finding.code == "DIM001")
    assert first.loc["h100-sxm5-80gb"].gain_us == dim.effect.per_gpu["h100-sxm5-80gb"].gain_us
    estimate = tclint.estimate(graph, gpu="a100")
    assert tclint.to_frame(estimate).time_us.sum() == pytest.approx(estimate.step_time_us)
    assert list(tclint.to_frame(graph).name) == [op.name for op in graph.ops]
    entries = tclint.to_frame(report.entries).set_index("gpu")
    metrics = report.entries[0].metrics["a100-sxm4-80gb"]
    assert entries.loc["a100-sxm4-80gb"].step_time_us == metrics.step_time_us
    with pytest.raises(UsageError, match=r"not a str\.$"):
        tclint.to_frame("model.py")


def test_without_pandas_a_sentence_says_so(report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(UsageError, match="pandas is not installed"):
        tclint.to_frame(report)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("IPython")
    from IPython.testing.globalipapp import start_ipython

    monkeypatch.chdir(tmp_path)
    shell = start_ipython() or __import__("IPython").get_ipython()
    tclint.load_ipython_extension(shell)
    return shell


SCALED = """\
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    !echo a line for the shell
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(batch)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


def test_notebooks_show_tables(shell, graph, report, monkeypatch) -> None:
    monkeypatch.setattr(shell.display_formatter, "active_types", ["text/plain", "text/markdown"])

    def shown(result: object) -> str:
        return str(shell.display_formatter.format(result)[0]["text/markdown"])

    assert shown(report) == tclint.render(report, "markdown")
    assert "| <code>linear</code> | <code>wide</code> |" in shown(tclint.estimate(graph))
    assert "| linear | 2 |" in shown(graph)


def test_the_magic_lints_a_cell_runs_it_and_traces_a_model(shell, capsys) -> None:
    shell.push({"Net": Net, "loader": []})
    shell.run_cell("import torch", store_history=True)
    shell.run_cell("%%tclint\n" + SCALED)
    said = capsys.readouterr().out
    assert "].py:8:5: error AMP003" in said, "the line of the whole cell; torch is imported by another"
    assert isinstance(shell.user_ns["scaler"], torch.amp.GradScaler), "the cell ran"
    shell.run_cell("%%tclint net --gpu h100 --input 4096,1000\nnet = Net()")
    said = capsys.readouterr().out
    assert "no findings in this cell" in said
    assert "DIM001" in said
    assert "h100-sxm5-80gb" in said
    shell.run_cell("%tclint net --input 4096,1000 --mode infer")
    assert "infer" in capsys.readouterr().out


def test_findings_stand_in_the_cell(shell, capsys) -> None:
    shell.run_cell("import torch, tclint\nfrom torch import nn", store_history=True)
    made = "model = nn.Sequential(nn.Linear(1024, 1001), nn.ReLU(), nn.Linear(1001, 1024))"
    check = "found = tclint.check(model, inputs=torch.zeros(4096, 1024), gpu='a100').findings"
    for cell, line in (
        (f"{made}\n{check}", 2),  # a library's class: where it is checked
        (f"def build():\n    {made}\n    return model\n{check.replace('model', 'build')}", 2),
    ):
        result = shell.run_cell(f"{cell}\nprint(*(one.location.path for one in found))", store_history=True)
        [finding] = shell.user_ns["found"]
        at = finding.location
        assert (at.path, at.line) == (f"In[{result.execution_count}]", line)
    capsys.readouterr()
    result = shell.run_cell("%%tclint\ntorch.cuda.amp.GradScaler()", store_history=True)
    assert f"In[{result.execution_count}].py:2:1: info AMP014" in capsys.readouterr().out


def test_the_magic_sends_files_to_the_command_and_has_a_help(shell, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("x = 3\n")
    shell.run_line_magic("tclint", "train.py")
    assert capsys.readouterr().out.endswith(" A file is linted by !tclint train.py.\n")
    assert "%tclint model --gpu h100" in shell.find_line_magic("tclint").__doc__


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "%tclint takes the name of a model"),
        ("nothing", "'nothing' cannot be linted: NameError"),
        ("x --gpu", "The line of the magic cannot be read: --gpu needs a value; %tclint? explains it."),
        ("x --gppu h100", "There is no option 'gppu'. Did you mean 'gpu'"),
        ("x --precision fp17", "The option 'precision' "),
    ],
)
def test_the_magic_says_what_is_wrong(shell, capsys, line: str, sentence: str) -> None:
    shell.run_line_magic("tclint", line)
    assert f"tclint: {sentence}" in capsys.readouterr().out
