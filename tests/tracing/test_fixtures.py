"""The repository's own models: each traces whole, with sites; tests/graph/test_lowering_flops.py counts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tclint

FOLDER = Path(__file__).parents[2] / "fixtures"
MODELS = sorted(path.stem for path in FOLDER.glob("*.py") if "def build_model" in path.read_text())


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"traced_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", MODELS)
def test_fixture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))  # one builds on another
    module = load(name)
    inputs = module.example_inputs()
    graph = tclint.trace(module.build_model, inputs)
    assert graph.assumptions == ()
    assert graph.metadata["adjustments"] == []
    for op in graph.ops:
        site = op.construct_site or op.call_site
        assert site is not None
        assert Path(site.path).parent == FOLDER
