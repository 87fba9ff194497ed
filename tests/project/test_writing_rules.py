"""docs/how-to/writing-rules.md, followed to the letter: its files are written, its commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import tclint.plugin.graph
import tclint.plugin.source
from tclint.plugin import GraphContext, SourceContext

DOC = (Path(__file__).parents[2] / "docs" / "how-to" / "writing-rules.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL))
[COMMANDS] = re.findall(r"^```sh\n(.*?)^```$", DOC, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def run(project: Path, python_m_tclint: list[str]) -> Callable[[str], subprocess.CompletedProcess[str]]:
    def run(command: str) -> subprocess.CompletedProcess[str]:
        name, *words = command.removeprefix("python -m ").split()
        start = python_m_tclint if name == "tclint" else [sys.executable, "-m", name]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [*start, *words], cwd=project, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_every_python_block_is_a_file() -> None:
    assert DOC.count("```python") == sum(name.endswith(".py") for name in FILES)
    assert len(FILES) == 12


@pytest.mark.parametrize(
    ("command", "exit_code", "says"),
    list(
        zip(
            COMMANDS.splitlines(),
            (0, 0, 1, 0),
            (
                "3 passed",
                "The CUDA memory cache emptied in a loop.",
                "invalid_every_batch.py:7:5: warning OUR002",
                "see examples/OUR001/invalid_width_of_1001.py:14:16: the layer runs here",
            ),
            strict=True,
        )
    ),
)
def test_its_commands(
    run: Callable[[str], subprocess.CompletedProcess[str]], command: str, exit_code: int, says: str
) -> None:
    done = run(command)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert says in done.stdout


def test_what_it_names_is_there() -> None:
    graph, _, source = DOC.partition("## What a source rule can use")
    for context, text, count in ((GraphContext, graph, 8), (SourceContext, source, 10)):
        rows = re.findall(r"^\| `context\..*$", text, re.MULTILINE)
        names = {name for row in rows for name in re.findall(r"`context\.(\w+)", row)}
        assert len(names) >= count
        assert names <= {*dir(context), *context.__dataclass_fields__}
    imported = re.findall(r"^from tclint\.(\w+) import (.*)$", DOC, re.MULTILINE)
    assert {module for module, _ in imported} == {"plugin", "testing"}
    for module, listed in imported:
        if module == "plugin":
            assert set(listed.split(", ")) <= set(tclint.plugin.__all__)
    for public, text in ((tclint.plugin.graph, graph), (tclint.plugin.source, source)):
        [told] = re.findall(rf"`{re.escape(public.__name__)}` has (.*?)\.\s", text, re.DOTALL)
        finds = re.findall(r"It finds layers(.*?)\. An edit", text, re.DOTALL)
        named = set(re.findall(r"`(\w+)`", "".join((told, *finds))))
        assert len(named) >= 6
        assert named <= set(public.__all__)


@pytest.mark.parametrize("module", [tclint.plugin, tclint.plugin.source, tclint.plugin.graph])
def test_the_reference_has_every_name(module: ModuleType) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "plugin.md").read_text(encoding="utf-8")
    listed = re.findall(rf"^::: {re.escape(module.__name__)}\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in listed)


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("tclint.plugin", "tclint.graph.ops tclint.source.context numpy libcst torch"),
        ("tclint.plugin.source", "tclint.graph.dims tclint.analysis.change numpy libcst torch"),
        ("tclint.plugin.graph", "tclint.source.context libcst torch"),
    ],
)
def test_rules_import_only_what_they_need(module: str, left_out: str) -> None:
    program = f"import sys, {module}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert module in imported
    assert not imported & set(left_out.split())


def test_a_name_that_is_not_public_is_missing() -> None:
    with pytest.raises(AttributeError, match=r"tclint\.plugin.*'estimate'"):
        _ = tclint.plugin.estimate
