"""Packages that are not installed: models that use nothing of them are traced, others say what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tclint.config.settings import Settings
from tclint.tracing import TraceResult, trace_targets

HEAD = """
import not_here
import not_here.curves as curves
from not_there.parts import Logger, style, SIZE
from torch import nn
"""
NET = """
class Net(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        {build}

    def forward(self, x):
        {run}
        return super().forward(x)
"""


def traced(folder: Path, source: str, inputs: tuple[str, ...] = ("4,8",)) -> TraceResult:
    (folder / "model.py").write_text(source)
    [result] = trace_targets([f"{folder}/model.py:Net"], Settings(inputs=inputs))
    return result


def net(build: str = "pass", run: str = "pass") -> str:
    return NET.format(build=build, run=run)


@pytest.mark.parametrize(
    "beside",
    [
        "",
        "curves.use('Agg')\n",
        "class Mine(Logger, nn.Module, at=3):\n    pass\n",
        "@style.rule('dark')\ndef draw(x: not_here.A | None, y: not_here.B[int] = SIZE):\n    curves.of(x)\n",
        "draw = lambda: curves.of(3)\nTABLE = {Logger: 3}\n",
        "if not_here.__version__ < '2':\n    raise ImportError('old')\n",
        "style.dark.width = 3\nstyle['dark'] = style.dark\ndel style.dark.width, style['dark'], style.dark\n",
    ],
    ids=["imports", "calls", "bases", "decorators", "values", "versions", "changes"],
)
def test_a_model_that_uses_nothing_of_them_is_traced(tmp_path: Path, beside: str) -> None:
    result = traced(tmp_path, HEAD + beside + net())
    assert result.graph is not None, result.error
    said = [assumption.what for assumption in result.graph.assumptions]
    assert "not_here and not_there are not installed here; the model runs without them" in said


@pytest.mark.parametrize(
    "source",
    [
        net(build="self.width = curves.width()"),
        net(run="x = x + curves.noise(x)"),
        net(run="x = x if not_here.FAST else x"),
        net(run="x = x if SIZE == 3 else -x"),
        net(run="x = sum(SIZE, x)"),
        net(build="self.width = 4 * SIZE"),
        net(build="self.width = -SIZE // 2"),
        net(build="self.width = [3, 4][SIZE]"),
        net(build="self.width = int(SIZE)"),
        net(build="SIZE[0] = 4"),
        net(build="del SIZE.width"),
        net(run="x = -x if isinstance(x, SIZE) else x"),
        net(run="\n        with SIZE:\n            x = -x"),
        net().replace("class Net", "@style\nclass Net"),
        "style['dark'] += 1\n" + net(),
        net(run="x = x if hasattr(not_here, 'fast') else -x"),
        net(build="self.width = {8: 16}.get(SIZE, 8)"),
        net(build="self.width = {'wide': 16}.get(f'{SIZE}', 8)"),
        "if not_here.FAST:\n    pass\n" + net(),
        net().replace("nn.Linear", "Logger"),
    ],
    ids=[
        "built",
        "run",
        "asked",
        "compared",
        "iterated",
        "multiplied",
        "divided",
        "taken as an index",
        "made a number",
        "changed",
        "deleted from",
        "asked for its instances",
        "entered",
        "made by a decorator",
        "changed at import",
        "looked for",
        "looked up",
        "written",
        "asked at import",
        "derived",
    ],
)
def test_a_model_that_uses_them_says_what_to_install(tmp_path: Path, source: str) -> None:
    message = str(traced(tmp_path, HEAD + source).error)
    used, other = (
        ("not_here", "not_there") if re.search("not_here|curves", source) else ("not_there", "not_here")
    )
    assert f"model.py imports '{used}', which is not installed here (" in message
    assert f"; install it and {other} in the environment that runs tclint." in message


def test_so_does_one_whose_inputs_are_searched_for(tmp_path: Path) -> None:
    message = str(traced(tmp_path, HEAD + net(run="x = x + curves.noise(x)"), ()).error)
    assert "model.py imports 'not_here', which is not installed here (" in message


def test_another_error_is_told_with_what_is_missing(tmp_path: Path) -> None:
    message = str(traced(tmp_path, HEAD + net(build="raise ValueError('no width')")).error)
    assert "raised ValueError: no width (" in message
    assert message.endswith("not_here and not_there are not installed here, which may be why.")


def test_arguments_that_are_wrong_are_not_blamed_on_them(tmp_path: Path) -> None:
    def message(argument: str, build: str = "pass") -> str:
        source = HEAD + net(build).replace("(self):", "(self, width=8):")
        (tmp_path / "model.py").write_text(source)
        [result] = trace_targets([f"{tmp_path}/model.py:Net"], Settings(arguments=(argument,)))
        return str(result.error)

    assert message("widht=3").endswith("it takes width. Did you mean 'width'?")
    assert message("width=-1", "nn.Linear(width, 8)").endswith("/model.py:10).")
    assert "'not_here', which is not installed here (" in message("width=3", "curves.width(width)")


def test_code_that_does_without_them_goes_its_own_way(tmp_path: Path) -> None:
    guarded = "try:\n    import not_here\n    width = 16\nexcept ImportError:\n    width = 8\n"
    result = traced(tmp_path, guarded + "from torch import nn\n" + net().replace("(8, 8)", "(8, width)"))
    assert result.graph is not None, result.error
    assert result.graph.parameter_count == 8 * 8 + 8
    assert not any("not_here" in assumption.what for assumption in result.graph.assumptions)


def test_a_module_that_is_not_there_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [result] = trace_targets(["not_here.models:Net"], Settings(inputs=("4,8",)))
    assert "There is no module 'not_here' here or installed" in str(result.error)


COMPILED = """
from torch import nn
from torch.utils.cpp_extension import load

twice = load("twice", sources=["twice.cpp", "twice.cu"])
"""
ON_CPU = "x = 2 * x if x.device.type == 'cpu' else twice.apply(x)"


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH", "PATH"):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("no_compiler")
def test_what_is_compiled_for_a_gpu_has_its_way_for_the_cpu(tmp_path: Path) -> None:
    result = traced(tmp_path, COMPILED + net(run=ON_CPU))
    assert result.graph is not None, result.error
    assert "mul" in [op.name for op in result.graph.ops]
    [told] = [one.what for one in result.graph.assumptions if "twice" in one.what]
    assert told.startswith("twice is compiled on the GPU machine and not here")


@pytest.mark.usefixtures("no_compiler")
def test_what_has_no_other_way_is_not_priced(tmp_path: Path) -> None:
    message = str(traced(tmp_path, COMPILED + net(run="x = twice.apply(x)")).error)
    assert "twice is not installed here (" in message


def test_code_that_asks_for_the_version_of_cuda_gets_one(tmp_path: Path) -> None:
    asked = "import torch\nMAJOR = int(torch.version.cuda.split('.')[0])\nfrom torch import nn\n"
    result = traced(tmp_path, asked + net())
    assert result.graph is not None, result.error
