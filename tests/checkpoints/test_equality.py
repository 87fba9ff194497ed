"""What is said of a padding is so: a search for nets where it is a lie, and what each verdict rests on."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from torch import Tensor, nn

import tclint

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
padding_search = importlib.import_module("padding_search")

EXAMPLES = int(os.environ.get("TCLINT_EQUALITY_EXAMPLES", "8"))
"""Raise it for a longer search; benchmarks/padding_search.py makes the longest."""


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 100,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, *([Phase.shrink] if EXAMPLES <= 100 else [])],
    database=None,
)
@given(net=padding_search.nets | padding_search.plain_nets)
def test_nothing_is_called_exact_that_is_not(net: Any) -> None:
    result = padding_search.compared(*net)
    assert not result.is_lie, (result.difference, result.plan)


SAME = (6, 6)
PLAIN = ("numbers", "plain", SAME)
EXACT = {
    "width": ((5, 8), [("mlp", True, SAME, "relu", True)], PLAIN),
    "inner width": (SAME, [("mlp", True, (5, 8), "gelu", True)], PLAIN),
    "a function of zero that is not zero": (SAME, [("mlp", True, (5, 8), "sigmoid", True)], PLAIN),
    "glu": (SAME, [("gate", False, (5, 8), "glu")], PLAIN),
    "chunks": (SAME, [("gate", False, (5, 8), "chunk")], PLAIN),
    "slices": (SAME, [("gate", False, (5, 8), "slice")], PLAIN),
    "pairs": (SAME, [("gate", False, (5, 8), "unbind")], PLAIN),
    "heads": (SAME, [("attention", False, (2, 3), (5, 5), "qkv heads", "masked", True)], PLAIN),
    "cosine attention": (SAME, [("attention", False, (2, 2), (3, 4), "heads qkv", "cosine", True)], PLAIN),
    "constant scale": (
        SAME, [("attention", False, (2, 2), (3, 4), "split", "of constant scale", True)], PLAIN),
    "lstm": (SAME, [("recurrent", False, (5, 8), "lstm", 2, True)], PLAIN),
    "gru": ((5, 8), [("recurrent", True, (5, 8), "gru", 1, False)], PLAIN),
    "concatenation": (SAME, [("joined", True, (5, 8), (6, 8), "split")], PLAIN),
    "groups": ((5, 8), [("bank", True, (3, 4), 2, "plain", "batch")], PLAIN),
    "depthwise": ((5, 8), [("bank", True, (5, 8), 1, "depthwise", "batch")], PLAIN),
    "channel multiplier": ((5, 8), [("bank", True, (5, 8), 1, "multiplied", "instance")], PLAIN),
    "transposed groups": ((5, 8), [("bank", True, (3, 4), 2, "transposed", "none")], PLAIN),
    "shuffled channels": ((5, 8), [("bank", True, (3, 4), 2, "shuffled", "batch")], PLAIN),
    "squeeze and excite": ((5, 8), [("squeeze", True, (2, 8))], PLAIN),
    "flattened": ((5, 8), [("mlp", True, SAME, "relu", True)], ("numbers", "flat", SAME)),
    "a gate by an index from the start": ((5, 8), [("function", False, "gated by the second")], PLAIN),
    "halves swapped": ((5, 8), [("function", False, "halves swapped")], PLAIN),
    "rows of two": (SAME, [("mlp", False, (4, 8), "rows of two", True)], PLAIN),
    "the mean over the length": ((5, 8), [("function", False, "mean over the length by count")], PLAIN),
}  # fmt: skip
EXACT_WITH = {
    "vocabulary": (SAME, [("function", False, "relu")], ("words", "tied", (5, 8)), {"slice_output"}),
    "features": ((5, 8), [("function", False, "relu")], ("numbers", "features", SAME), {"slice_output"}),
    "attention": (SAME, [("attention", False, (2, 2), (3, 4), "qkv heads", "fused", True)], PLAIN,
                  {"attention_scale"}),
    "attention with its scale": (
        SAME, [("attention", False, (2, 2), (3, 4), "heads of qkv", "fused with scale", True)], PLAIN,
        {"attention_scale"}),
    "written-out attention": (SAME, [("attention", False, (2, 2), (3, 4), "split", "masked", True)], PLAIN,
                              {"constant"}),
    "scores scaled as they are made": (
        SAME, [("attention", False, (2, 2), (3, 4), "split", "baddbmm", True)], PLAIN, {"constant"}),
    "by the root of the width": ((5, 8), [("function", False, "by root of width")], PLAIN, {"constant"}),
}  # fmt: skip
NUMBER = ("scaled", True, (5, 8))
INEXACT = {
    "layer norm": ((5, 8), [("norm", True, "layer")], PLAIN, "layer_norm at padding_nets.py"),
    "layer norm after a mask of infinities": (
        (5, 8), [("attention", False, (2, 2), (3, 3), "split", "masked", True), ("norm", True, "layer")],
        PLAIN, "layer_norm at padding_nets.py"),
    "RMS norm": ((5, 8), [("norm", True, "rms")], PLAIN, "rms_norm"),
    "group norm": (SAME, [("bank", True, (3, 4), 2, "plain", "group")], PLAIN, "group_norm"),
    "softmax": ((5, 8), [("function", False, "softmax")], PLAIN, "softmax"),
    "mean": ((5, 8), [("function", False, "centred")], PLAIN, "mean"),
    "rotary halves": (SAME, [("rotary", False, (6, 8))], PLAIN, "output 0 differs by"),
    "sums of what is not zero": (
        (5, 8), [("function", False, "sigmoid"), ("function", False, "less its sum")], PLAIN, "sum"),
    "linear attention": (SAME, [("attention", False, (2, 2), (3, 4), "qkv heads", "linear", True)], PLAIN,
                         "output 0 differs"),
    "a root at zero": (
        (5, 8), [("mlp", False, SAME, "relu", True), ("function", False, "root of it")], PLAIN,
        "the gradient of"),
    "numbered": ((5, 8), [("function", False, "numbered from the end")], PLAIN, "arange at padding_nets.py"),
    "a gate by the middle": ((5, 8), [("function", False, "gated by the middle")], PLAIN, "sigmoid"),
    "the last entries": ((5, 8), [("function", False, "from the end")], PLAIN, "sum"),
    "another branch": ((5, 8), [("function", False, "other for odd widths")], PLAIN,
                       "runs in the place of mul"),
    "a longer loop": ((5, 8), [("function", False, "a step for every three")], PLAIN,
                      "runs at the new sizes only"),
}  # fmt: skip
NUMBERS = {
    "half": (NUMBER, ("//", ("K",), ("number", 2)), "times"),
    "root": (NUMBER, ("root", ("/", ("number", 2), ("K",))), "over"),
    "of four": (NUMBER, ("power", ("*", ("K",), ("number", 4))), "times"),
    "one more": (NUMBER, ("+", ("K",), ("number", 1)), "alpha"),
    "its share": (NUMBER, ("-", ("number", 1), ("/", ("number", 1), ("K",))), "plus"),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str) -> None:
    result = padding_search.compared(*EXACT[name])
    assert (result.verdict, result.reason, result.difference) == ("exact", "", "")
    assert result.grown


@pytest.mark.parametrize("name", EXACT_WITH)
def test_exact_with_an_edit(name: str) -> None:
    *net, kinds = EXACT_WITH[name]
    result = padding_search.compared(*net)
    assert (result.verdict, result.reason, result.difference) == ("exact_with", "", "")
    assert {edit.kind for edit in result.edits} == kinds


@pytest.mark.parametrize("name", INEXACT)
def test_inexact_with_its_reason(name: str) -> None:
    *net, reason = INEXACT[name]
    result = padding_search.compared(*net, always=True)
    assert result.verdict == "inexact"
    assert reason in result.reason
    assert result.difference


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_made_of_the_size_have_to_stay(name: str) -> None:
    layer, number, kind = NUMBERS[name]
    result = padding_search.compared(SAME, [(*layer, number, kind)], PLAIN)
    assert (result.verdict, result.difference) == ("exact_with", "")
    [edit] = result.edits
    assert edit.kind == "constant"
    assert edit.value == pytest.approx(padding_search.padding_nets.number_of(number, 5))
    assert Path(edit.path).name == "padding_nets.py"


class Channels(nn.Module):
    """Channels in whose place several others come."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        inner, outer = {"shuffle": (4 * width, width), "unshuffle": (width, 4 * width)}.get(
            kind, (width, 2 * width)
        )
        self.up, self.down = nn.Conv2d(3, inner, 1), nn.Conv2d(outer, 4, 1)
        if kind == "multiplied":
            self.middle: nn.Module = nn.Conv2d(width, 2 * width, 3, padding=1, groups=width)
        elif kind == "transposed":
            self.middle = nn.ConvTranspose2d(width, 2 * width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.kind.endswith("shuffle"):
            return self.down((F.pixel_shuffle if self.kind == "shuffle" else F.pixel_unshuffle)(x, 2).relu())
        return self.down(self.middle(x).relu())


@pytest.mark.parametrize("kind", ["shuffle", "unshuffle", "multiplied", "transposed"])
def test_channels_stay_beside_what_comes_of_them(kind: str) -> None:
    plan = tclint.verify_padding(Channels(5, kind), Channels(8, kind), torch.randn(2, 3, 8, 8))
    assert (plan.proof.verdict, plan.proof.reason) == ("exact", "")


class Bounded(nn.Module):
    """Reads its width where ordinary inputs do not show it."""

    def __init__(self, width: int, what: str) -> None:
        super().__init__()
        self.what = what
        self.up, self.down = nn.Linear(6, width), nn.Linear(width, 3)
        self.factor = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        x = self.up(x)
        if self.what == "clamp":
            return self.down(x.clamp(max=100 * x.shape[-1]))
        if self.what == "tensor":
            return self.down(torch.minimum(x, torch.tensor(100.0 * x.shape[-1])))
        if self.what == "zero factor":
            return self.down(x) + self.factor * x.mean(-1, keepdim=True)
        if self.what == "classes":
            return self.down(x).argmax(-1)
        if self.what == "nothing":
            return self.down(x) * 0.0
        if self.what == "not a number":
            return self.down(x) * float("nan")
        return {"low": self.down(x.float()).half(), "place": torch.arange(3)}


def test_only_stacks_of_equal_layers_are_shortened() -> None:
    from tclint.tracing.equality.fewer_layers import shorten
    from tclint.tracing.equality.runs import CannotTell

    def stack(*widths: int) -> nn.Sequential:
        return nn.Sequential(*(nn.Linear(width, width, device="meta") for width in widths))

    model = nn.ModuleDict({"equal": stack(3, 4, 4, 4), "other": stack(3, 4, 4, 5), "short": stack(3, 3)})
    model["norm"] = nn.BatchNorm1d(4, device="meta")
    model["norm"].num_batches_tracked = torch.tensor(0)
    original = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3))
    padded = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 3))
    plan = tclint.verify_padding(original, padded, torch.randn(2, 3))
    kept, layers = shorten(model, plan)
    assert [len(model[name]) for name in ("equal", "other", "short")] == [2, 4, 2]
    assert layers == "the first 2 of 4 layers of equal"
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    assert kept.tensors == plan.tensors
    with pytest.raises(CannotTell, match="no stack of equal layers"):
        shorten(nn.ModuleDict({"other": stack(3, 4, 4, 5)}), plan)
    tabled = nn.ModuleDict({"equal": stack(4, 4, 4)})
    tabled.register_buffer("table", torch.zeros(3, device="meta"))
    with pytest.raises(CannotTell, match="the values of table"):
        shorten(tabled, plan)


def verdict(what: str, x: Tensor | None = None) -> tuple[str, str]:
    x = torch.randn(4, 6) if x is None else x
    proof = tclint.verify_padding(Bounded(5, what), Bounded(8, what), x).proof
    return proof.verdict, proof.reason


def test_what_random_numbers_hardly_show() -> None:
    assert verdict("clamp")[0] == "exact_with"
    assert verdict("tensor")[0] == "exact_with"
    assert verdict("zero factor")[0] == "inexact"
    assert verdict("zero factor", torch.zeros(4, 6))[0] == "inexact"  # zeros stand for any numbers
    assert verdict("low precision") == ("exact", "")
    assert verdict("classes") == ("unproved", "its outputs are no numbers that change with every weight")
    assert verdict("nothing") == ("unproved", "its outputs are zero for random weights")
    assert verdict("not a number") == ("unproved", "its outputs are no numbers for random weights")


def test_the_models_stay_as_they_are() -> None:
    models = [Bounded(width, "clamp").train() for width in (5, 8)]
    before = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
    x = torch.randn(4, 6)
    random_state = torch.get_rng_state()
    tclint.verify_padding(*models, x)
    for model, state in zip(models, before, strict=True):
        assert model.training
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.get_rng_state(), random_state)


def test_their_code_runs_in_another_process() -> None:
    ran = []

    class Noted(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            ran.append(x)
            return super().forward(x)

    models = [Noted(nn.Linear(6, width), nn.Linear(width, 3)) for width in (5, 8)]
    assert tclint.verify_padding(*models, torch.randn(4, 6)).proof.verdict == "exact"
    assert not ran


def test_another_model_is_no_padding() -> None:
    proof = tclint.verify_padding(Bounded(5, "clamp"), nn.Linear(6, 3), torch.randn(4, 6)).proof
    assert proof.verdict == "unproved"
    assert "has no such" in proof.reason
