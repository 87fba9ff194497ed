"""Calls that torch refuses on real tensors are refused in a trace, with the line of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from versions import since_2_5

import tclint
from tclint.core.errors import TargetError


def tokens(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64)


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


X = torch.randn(2, 4, 6)
IMAGE = torch.randn(2, 4, 6, 6)
SPREAD = torch.randn(2, 2, 3, 4)

REFUSED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "linear, integers": (nn.Linear(6, 3), (tokens(2, 6),)),
    "linear, double": (nn.Linear(6, 3), (X.double(),)),
    "linear, size": (nn.Linear(5, 3), (X,)),
    "product, integers": (torch.matmul, (X, tokens(2, 6, 3))),
    "conv, channels": (nn.Conv2d(3, 8, 3), (IMAGE,)),
    "conv, integers": (nn.Conv1d(4, 8, 3), (tokens(2, 4, 6),)),
    "transposed conv, channels": (nn.ConvTranspose1d(5, 8, 3), (X,)),
    "transposed conv, groups": (nn.ConvTranspose2d(8, 8, 3, groups=2), (IMAGE,)),
    "conv, bias": (F.conv1d, (X, torch.randn(8, 4, 3), torch.randn(7))),
    "layer norm": (nn.LayerNorm(5), (X,)),
    "group norm, groups": (lambda x: F.group_norm(x, 3), (X,)),
    "group norm, channels": (nn.GroupNorm(2, 6), (X,)),
    "batch norm": (nn.BatchNorm2d(5), (IMAGE,)),
    "instance norm": (nn.InstanceNorm2d(5, affine=True), (IMAGE,)),
    "norm, integers": (nn.LayerNorm(6), (tokens(2, 4, 6),)),
    "embedding, floats": (nn.Embedding(9, 4), (X,)),
    "attention, keys": (F.scaled_dot_product_attention, (SPREAD, SPREAD[..., :3], SPREAD)),
    "attention, batch": (F.scaled_dot_product_attention, (SPREAD, SPREAD.repeat(2, 1, 1, 1), SPREAD)),
    "attention, mask": (F.scaled_dot_product_attention, (SPREAD, SPREAD, SPREAD, torch.ones(5, 3) > 0)),
    "recurrent, integers": (nn.LSTM(6, 5), (tokens(2, 4, 6),)),
    "recurrent, state": (nn.GRU(6, 5), (X, torch.zeros(1, 4, 5).double())),
    "index, floats": (lambda x, i: x[i], (X, torch.ones(2))),
    "index, mask": (lambda x, m: x[m], (X, torch.ones(2, 5) > 0)),
    "write, values": (lambda x, i, v: x.clone().index_put_((i,), v), (X, tokens(3), torch.randn(3, 5, 6))),
    "write, view": (lambda x, v: x.clone().__setitem__((slice(None), 1), v), (X, torch.randn(2, 5))),
    "in place, sizes": (lambda a, b: a.clone().add_(b), (X, X[:, :3])),
    "in place, dtype": (lambda a, b: a.add_(b), (tokens(2, 3), torch.randn(2, 3))),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), (X, tokens(2), torch.randn(2, 4, 5))),
    "mean": (lambda x: x.mean((2, 3)), (X,)),
    "targets": (nn.CrossEntropyLoss(), (torch.randn(4, 5), tokens(4).int())),
    "gelu": (F.gelu, (tokens(4),)),
    "softmax": (lambda x: x.softmax(-1), (tokens(4, 5),)),
    "several values as a truth": (lambda x: 1 if x > 0 else 0, (X,)),
    "several values as a number": (lambda x: x.item(), (X,)),
    "packed, size": (
        lambda x: nn.LSTM(20, 4)(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([2, 2, 1, 1])))[0].data,
        (X,),
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=since_2_5) if case == "in place, dtype" else case for case in REFUSED]
)
def test_what_torch_refuses_is_refused(case: str) -> None:
    function, inputs = REFUSED[case]
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        Calls(function)(*(tensor.clone() for tensor in inputs))
    with pytest.raises(TargetError, match=r"raised \w+Error: .*\(tests/tracing/test_refusals\.py:\d+\)"):
        tclint.trace(lambda: Calls(function), inputs)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        # Valid under autocast around the model, which a trace does not see.
        (nn.Linear(6, 3), (X.half(),)),
        (nn.LayerNorm(6), (X.bfloat16(),)),
        # Fewer heads of keys and values.
        pytest.param(
            lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
            (torch.randn(2, 4, 3, 8), torch.randn(2, 2, 3, 8)),
            marks=since_2_5,
        ),
        (nn.Conv2d(4, 8, 3), (IMAGE[0],)),
        (lambda x, m: x.masked_fill(m, 0.0), (X, torch.ones(6) > 0)),
        (lambda x, m: x[m], (X, torch.ones(2, 4) > 0)),
        (lambda x, i, v: x.clone().index_put_((i,), v), (X, tokens(3), torch.randn(6))),
        (lambda x: x.softmax(-1, dtype=torch.float32), (tokens(4, 5),)),
        (F.cross_entropy, (torch.randn(4, 5), torch.rand(4, 5))),
    ],
)
def test_what_may_be_right_is_traced(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    assert tclint.trace(lambda: Calls(function), inputs).ops


def test_broadcast_attention_has_the_broadcast_shape() -> None:
    graph = tclint.trace(lambda: Calls(F.scaled_dot_product_attention), (SPREAD[:1], SPREAD, SPREAD))
    assert graph.outputs[0].shape == SPREAD.shape


def test_what_runs_without_a_meta_kernel_is_refused_in_the_words_of_the_cpus() -> None:
    lengths = [torch.full((2,), 6), torch.full((3,), 2)]
    model = Calls(F.ctc_loss)
    with pytest.raises(TargetError, match="target_lengths must be of size batch_size"):
        tclint.trace(lambda: (model, (torch.randn(6, 2, 9), tokens(2, 4), *lengths)))
