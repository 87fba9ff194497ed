"""Mutated programs through rules and fixes; benchmarks/fuzz_source.py does the same for hours."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import libcst as cst
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tclint.core.finding import Edit
from tclint.edits.codemod import Codemod
from tclint.edits.program import statements_of

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_source", ROOT / "benchmarks" / "fuzz_source.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_source"] = module
    spec.loader.exec_module(module)
    return module


fuzz_source = load()
PROGRAMS = fuzz_source.examples()


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> object:
    return fuzz_source.Fuzzer(tmp_path_factory.mktemp("fuzz"))


@given(st.sampled_from(PROGRAMS), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_mutants_are_refused_or_fixed_well(fuzzer: object, program: str, chance: random.Random) -> None:
    problem = fuzzer.check(fuzz_source.mutate(program, chance, PROGRAMS))  # type: ignore[attr-defined]
    assert problem is None


TORCH_TWICE = """\
import torch
import torch

context = torch.cuda.amp.autocast()
engine = Engine(scaler_class=torch.cuda.amp.GradScaler)
"""


@pytest.mark.parametrize("program", [TORCH_TWICE, *PROGRAMS[::21]])
def test_programs_are_fixed_well(fuzzer: object, program: str) -> None:
    assert fuzzer.check(program) is None  # type: ignore[attr-defined]


def test_the_fuzzer_sees_what_a_fix_breaks(fuzzer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import torch\n\nimages = torch.rand(8, 3, 224, 224)\nimages.to(memory_format=torch.channels_last)\n"
        "loss = model(images)\n"
    )
    assert fuzzer.check(program) is None  # type: ignore[attr-defined]

    class Breaks(Codemod):
        def plan(self) -> None:
            broken = cst.SimpleStatementLine([cst.Expr(cst.Name("def"))])
            self.insert_before(statements_of(self.program.module)[0], broken)

    monkeypatch.setitem(fuzz_source.CODEMODS, "FMT002", Breaks)
    problem = fuzzer.check(program)  # type: ignore[attr-defined]
    assert problem == "the fix of FMT002 on line 4 does not parse"


def test_the_other_way_of_applying_edits_agrees_on_line_ends() -> None:
    text = "a\r\nb\rc\nd"
    edits = [Edit("f", (1, 2), (2, 1), "!"), Edit("f", (3, 1), (3, 1), "x\n"), Edit("f", (4, 1), (4, 2), "")]
    assert fuzz_source.edited_by_line(text, edits) == "a!b\rx\nc\n"
