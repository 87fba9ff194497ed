"""Guessed conditions show work: no early exits, one round of loops that data ends, every layer."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tclint
from tclint.core.errors import TargetError


class Lambda(nn.Module):
    """One layer and a function of it."""

    def __init__(self, function: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer, x)


def skips_empty(layer: nn.Linear, x: Tensor) -> Tensor:
    for row in x:
        if not (row > 0).any():
            continue
        x = layer(x)
    return x


def stops_when_all_are_done(layer: nn.Linear, x: Tensor) -> Tensor:
    for _ in range(3):
        x = layer(x)
        if (x.abs() < 1e-3).all():
            break
    return x


def returns_nothing_found(layer: nn.Linear, x: Tensor) -> Tensor:
    if not (x > 0).any() and x.shape[0]:
        return x
    return layer(x)


def returns_the_usual_way(layer: nn.Linear, x: Tensor) -> Tensor:
    if torch.isfinite(x).all():
        return layer(x)
    return layer(layer(x))


def loops_while_some_are_left(layer: nn.Linear, x: Tensor) -> Tensor:
    while (x > 0).any() and x.shape[0]:
        x = layer(x)
    return x


def loops_until_all_are_done(layer: nn.Linear, x: Tensor) -> Tensor:
    while not (x == 0).all():
        x = layer(x)
    return x


def loops_in_a_loop(layer: nn.Linear, x: Tensor) -> Tensor:
    for _ in range(2):
        while (x > 0).any():
            x = layer(x)
    return x


def asks_for_the_opposite(layer: nn.Linear, x: Tensor) -> Tensor:
    for row in x:
        if bool((row > 0).any()) is False:
            continue
        x = layer(x)
    return x


def does_more_in_one_branch(layer: nn.Linear, x: Tensor) -> Tensor:
    if (x > 0).any():
        x = layer(x)
    else:
        x *= 2
    return x


def does_more_in_the_other_branch(layer: nn.Linear, x: Tensor) -> Tensor:
    if not (x > 0).any():
        x *= 2
    else:
        x = layer(x)
    return x


def does_the_same_in_both_branches(layer: nn.Linear, x: Tensor) -> Tensor:
    if (x > 0).any():
        x = layer(x)
        x = layer(x)
    else:
        x = layer(x)
    return x


def finds_the_layer_in_a_list(layer: nn.Linear, x: Tensor) -> Tensor:
    layers = {"first": nn.ModuleList([layer])}
    for name in layers:
        if x.sum() > 0:
            x = layers[name][0](x)
        if x.sum() > 1:
            x = layers["first"][0].forward(x)
    return x


def chooses_in_a_line(layer: nn.Linear, x: Tensor) -> Tensor:
    return x * 2 if not (x > 0).any() else layer(x)


def repairs_what_is_not_a_number(layer: nn.Linear, x: Tensor) -> Tensor:
    if torch.isnan(x).any():
        x = layer(x)
    return x


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (skips_empty, 2),
        (stops_when_all_are_done, 3),
        (returns_nothing_found, 1),
        (returns_the_usual_way, 1),
        (loops_while_some_are_left, 1),
        (loops_until_all_are_done, 1),
        (loops_in_a_loop, 2),
        (asks_for_the_opposite, 0),  # such a comparison is not read: the guess stays False
        (does_more_in_one_branch, 1),
        (does_more_in_the_other_branch, 1),
        (does_the_same_in_both_branches, 1),
        (finds_the_layer_in_a_list, 2),
        (chooses_in_a_line, 1),
        (repairs_what_is_not_a_number, 0),
    ],
)
def test_a_guess_shows_the_work(function: Callable[[nn.Linear, Tensor], Tensor], calls: int) -> None:
    graph = tclint.trace(lambda: Lambda(function), torch.empty(2, 4, device="meta"))
    assert sum(op.name == "linear" for op in graph.ops) == calls
    assert all("condition on traced data" in assumption.what for assumption in graph.assumptions)
    assert graph.assumptions


def test_a_reason_stands_with_the_guess() -> None:
    x = torch.empty(2, 4, device="meta")
    (assumed,) = tclint.trace(lambda: Lambda(skips_empty), x).assumptions
    assert assumed.what.endswith("True assumed, so that the continue does not leave work out")
    (first, second) = tclint.trace(lambda: Lambda(loops_while_some_are_left), x).assumptions
    assert first.what.endswith("True assumed, one round of the loop")
    assert second.what.endswith("False assumed, one round of the loop")


class Routed(nn.Module):
    """Experts that are asked by another function, so that the condition alone tells."""

    def __init__(self, has_any: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.has_any = has_any
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).topk(2).indices
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = (chosen == number).any(-1)
            if self.has_any(mask):
                out[mask] += _ask(expert, x[mask])
        return out


def _ask(expert: nn.Module, x: Tensor) -> Any:
    return expert(x)


@pytest.mark.parametrize(
    "has_any",
    [
        torch.any,
        lambda mask: mask.any().item(),
        lambda mask: mask.sum() > 0,
        lambda mask: mask.count_nonzero() != 0,
    ],
)
def test_experts_run_on_their_share(has_any: Callable[[Tensor], Any]) -> None:
    graph = tclint.trace(lambda: Routed(has_any), torch.empty(32, 8, device="meta"))
    rows = [op.inputs[0].shape[0] for op in graph.ops if op.name == "linear"]
    assert rows == [32, 16, 16, 16, 16]
    assert graph.assumptions[0].what == "condition on traced data: True assumed"


def insists_on_a_small_norm(layer: nn.Linear, x: Tensor) -> Tensor:
    assert x.norm() < 10, "large"
    return layer(x)


def raises_where_nothing_is_found(layer: nn.Linear, x: Tensor) -> Tensor:
    if not (x > 0).any():
        raise ValueError("nothing")
    return layer(x)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (insists_on_a_small_norm, "as is asserted"),
        (raises_where_nothing_is_found, "so that nothing is raised"),
    ],
)
def test_what_a_model_insists_on_is_so_at_once(
    function: Callable[[nn.Linear, Tensor], Tensor], why: str
) -> None:
    graph = tclint.trace(lambda: Lambda(function), torch.empty(2, 4, device="meta"))
    (assumed,) = graph.assumptions
    assert assumed.what == f"condition on traced data: True assumed, {why}"
    assert graph.metadata["adjustments"] == []


def drops_layers(layer: nn.Linear, x: Tensor) -> Tensor:
    for _ in range(40):
        if torch.rand([]) < 0.5:
            continue
        x = layer(x)
    return x


def test_no_layer_is_dropped_by_chance() -> None:
    graph = tclint.trace(lambda: Lambda(drops_layers), torch.empty(2, 4, device="meta"))
    assert sum(op.name == "linear" for op in graph.ops) == 40
    (assumed,) = graph.assumptions
    assert assumed.what == "condition on a random number: False assumed"
    assert assumed.count == 40


def test_a_librarys_exit_is_not_taken_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its forward is reached through more calls than are looked at for names."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    wrappers = "\n".join(f"def call{n}(layer, x): return call{n + 1}(layer, x)" for n in range(8))
    (folder / "decoding_library.py").write_text(
        f"{wrappers}\n"
        "def call8(layer, x):\n"
        "    for _ in range(3):\n"
        "        x = layer(x)\n"
        "        if x.argmax(dim=1).eq(2).any(-1).all():\n"
        "            break\n"
        "    return x\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    library = importlib.import_module("decoding_library")
    graph = tclint.trace(lambda: Lambda(library.call0), torch.empty(2, 4, device="meta"))
    assert sum(op.name == "linear" for op in graph.ops) == 3


_PLAIN = """
def run(layer, x):
    for _ in range(3):
        x = layer(x)
        if (x.abs() < 1e-3).all():
            break
    return x
"""
_ODD = {
    "comment at the margin": _PLAIN.replace("        if", "# of no block\n        if"),
    "text at the margin": _PLAIN.replace("        if", '        text = """\nno code:\n"""\n        if'),
    "tabs": _PLAIN.replace("    ", "\t"),
    "line ends of Windows": _PLAIN.replace("\n", "\r\n"),
    "signature of several lines": _PLAIN.replace("(layer, x):", "(\n    layer,\n    x,\n):"),
    "decorated": "import functools" + _PLAIN.replace("def", "@functools.wraps(\n    print,\n)\ndef", 1),
    "closed in another line": _PLAIN.replace("return x", "return (\n        x\n    )"),
    "long": _PLAIN.replace("    return", "    x = x\n" * 400 + "    return"),
    "in a function": "\ndef make():" + _PLAIN.replace("\n", "\n    ") + "\n    return run\nrun = make()\n",
    "in a class": "\nclass Made:" + _PLAIN.replace("\n", "\n  ") + "\nrun = Made.run\n",
    "with a function": _PLAIN.replace("    for", "    def inner(y):\n        return y\n    for", 1),
    "beside what cannot be parsed alone": _PLAIN + "\nif True:\n  other = [\nlambda: 1\n]\n",
}


@pytest.mark.parametrize("name", _ODD)
def test_an_exit_is_found_however_the_function_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "odd_" + name.replace(" ", "_")
    (tmp_path / f"{module}.py").write_bytes(_ODD[name].encode())
    monkeypatch.syspath_prepend(tmp_path)
    graph = tclint.trace(
        lambda: Lambda(importlib.import_module(module).run), torch.empty(2, 4, device="meta")
    )
    assert sum(op.name == "linear" for op in graph.ops) == 3
    (said,) = graph.assumptions
    assert "break does not leave work out" in said.what


def test_the_rest_of_a_block_belongs_to_it_though_nothing_of_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declares_only.py").write_text(
        "def run(layer, x):\n"
        "    x = layer(x)\n"
        "    if (x > 0).any():\n"
        "        return x\n"
        "    else:\n"
        "        y: int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    graph = tclint.trace(
        lambda: Lambda(importlib.import_module("declares_only").run), torch.empty(2, 4, device="meta")
    )
    (said,) = graph.assumptions
    assert said.what == "condition on traced data: False assumed"


class AdaptiveSteps(nn.Module):
    """An integrator that takes a step where its error is small, as it never is by the usual guess."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        time, step = 0.0, 0.25
        while time < 1.0:
            first = self.slope(x)
            second = self.slope(x + step * first)
            if (second - first).abs().max() < 1e-2:
                x = x + step / 2 * (first + second)
                time += step
        return x


def test_a_loop_that_waits_for_the_other_answer_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tclint.tracing.values.assumptions._MAX_ANSWERS", 50)
    graph = tclint.trace(AdaptiveSteps, torch.empty(2, 8, device="meta"))
    assert sum(op.name == "linear" for op in graph.ops) == 8
    (said,) = graph.assumptions
    assert (said.what, said.count) == ("condition on traced data: True assumed", 4)


def test_a_loop_that_ends_may_ask_as_often_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tclint.tracing.values.assumptions._MAX_ANSWERS", 50)

    def use(layer: nn.Linear, x: Tensor) -> Tensor:
        y = x
        for _ in range(60):
            if (x > 0).any():
                y = y + 1
        return layer(y)

    assert tclint.trace(lambda: Lambda(use), torch.empty(2, 4, device="meta")).outputs[0].shape == (2, 4)


def test_a_loop_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tclint.tracing.values.assumptions._MAX_ANSWERS", 50)

    def use(layer: nn.Linear, x: Tensor) -> Tensor:
        steps = 0
        while True:
            x = layer(x)
            if x.norm() < 1e-3:
                steps += 1

    with pytest.raises(TargetError, match="a condition on traced data was asked 50 times"):
        tclint.trace(lambda: Lambda(use), torch.empty(2, 4, device="meta"))
