"""Where a plan says that a padded model computes the same, it does: a search for nets where it is a lie."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

HERE = Path(__file__).resolve().parent
EXAMPLES = int(os.environ.get("TCLINT_EQUALITY_EXAMPLES", "25"))
"""Raise it for a long search."""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


equality = load(HERE.parents[1] / "benchmarks" / "padded_equality.py")
random_nets = load(HERE / "random_nets.py")

functions = st.sampled_from(sorted(random_nets.FUNCTIONS))


def widths(smallest: int = 2, largest: int = 9) -> st.SearchStrategy[tuple[int, int]]:
    """A size, and the same or a larger one."""
    return st.tuples(st.integers(smallest, largest), st.integers(0, 4)).map(lambda pair: (pair[0], sum(pair)))


even = widths(1, 4).map(lambda pair: (2 * pair[0], 2 * pair[1]))
fixed = st.integers(1, 3).map(lambda size: (size, size))
orders = st.sampled_from(["qkv heads", "heads qkv", "heads of qkv", "split"])
products = st.sampled_from(
    ["fused", "fused with scale", "of constant scale", "cosine", "linear", "einsum", "masked", "baddbmm"]
)
layers = st.one_of(
    st.tuples(st.just("function"), st.booleans(), functions),
    st.tuples(st.just("mlp"), st.booleans(), widths(), functions, st.booleans()),
    st.tuples(st.just("gate"), st.booleans(), widths(),
              st.sampled_from(["glu", "chunk", "slice", "pairs", "unbind"])),
    st.tuples(st.just("attention"), st.booleans(), fixed | widths(1, 3), widths(2, 5), orders, products,
              st.booleans()),
    st.tuples(st.just("recurrent"), st.booleans(), widths(), st.sampled_from(["lstm", "gru", "rnn"]),
              st.integers(1, 2), st.booleans()),
    st.tuples(st.just("joined"), st.booleans(), widths(), widths(), st.sampled_from(["cat", "split"])),
    st.tuples(st.just("bank"), st.booleans(), widths(1, 4), st.integers(1, 3),
              st.sampled_from(["plain", "depthwise", "multiplied", "transposed", "weight norm", "shuffled"]),
              st.sampled_from(["none", "batch", "instance", "group"])),
    st.tuples(st.just("norm"), st.booleans(), st.sampled_from(["batch", "layer", "rms"])),
    st.tuples(st.just("frozen"), st.booleans()),
    st.tuples(st.just("squeeze"), st.booleans(), widths()),
    st.tuples(st.just("rotary"), st.booleans(), even),
)  # fmt: skip
ends = st.tuples(
    st.sampled_from(["words", "numbers"]),
    st.sampled_from(["tied", "flat", "probabilities", "features", "plain"]),
    widths(5, 9),
)


def compared(width: Any, described: Any, chosen: Any, *, always: bool = False) -> Any:
    original, larger = random_nets.nets(width, described, chosen, seed=0)
    words = chosen[0] == "words"
    x = torch.randint(0, 5, (2, 4)) if words else torch.randn(2, 4, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return equality.compare(original, larger, (x,), always=always)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 100,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, *([Phase.shrink] if EXAMPLES <= 100 else [])],
    database=None,
)
@given(width=widths(2, 6), described=st.lists(layers, min_size=1, max_size=3), chosen=ends)
def test_nothing_is_called_exact_that_is_not(width: Any, described: Any, chosen: Any) -> None:
    result = compared(width, described, chosen)
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
}  # fmt: skip
EXACT_WITH = {
    "vocabulary": (SAME, [("function", False, "relu")], ("words", "tied", (5, 8)), {"slice_logits"}),
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
INEXACT = {
    "layer norm": ((5, 8), [("norm", True, "layer")], PLAIN, "layer norm"),
    "RMS norm": ((5, 8), [("norm", True, "rms")], PLAIN, "RMS norm"),
    "group norm": (SAME, [("bank", True, (3, 4), 2, "plain", "group")], PLAIN, "group norm"),
    "softmax": ((5, 8), [("function", False, "softmax")], PLAIN, "softmax"),
    "mean": ((5, 8), [("function", False, "centred")], PLAIN, "the mean"),
    "rotary halves": (SAME, [("rotary", False, (6, 8))], PLAIN, "a table"),
    "sums of what is not zero": (
        (5, 8), [("function", False, "sigmoid"), ("function", False, "less its sum")], PLAIN, "not zero"),
    "linear attention": (SAME, [("attention", False, (2, 2), (3, 4), "qkv heads", "linear", True)], PLAIN,
                         "summed"),
    "a root at zero": (
        (5, 8), [("mlp", False, SAME, "relu", True), ("function", False, "root of it")], PLAIN, "be finite"),
    "numbered": ((5, 8), [("function", False, "numbered from the end")], PLAIN, "a table"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_exact(name: str) -> None:
    result = compared(*EXACT[name])
    assert (result.verdict, result.reason, result.difference) == ("exact", "", "")
    assert result.grown


@pytest.mark.parametrize("name", EXACT_WITH)
def test_exact_with_an_edit(name: str) -> None:
    *net, kinds = EXACT_WITH[name]
    result = compared(*net)
    assert (result.verdict, result.reason, result.difference) == ("exact_with", "", "")
    assert {edit.kind for edit in result.edits} == kinds


@pytest.mark.parametrize("name", INEXACT)
def test_inexact_with_its_reason(name: str) -> None:
    *net, reason = INEXACT[name]
    result = compared(*net, always=True)
    assert result.verdict == "inexact"
    assert reason in result.reason
    assert result.difference
