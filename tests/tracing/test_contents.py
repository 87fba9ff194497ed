"""Guesses about traced values that have to fit together, and values that are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tclint

TOKENS, EXPERTS = 30, 4


class Routed(nn.Module):
    """Tokens split by the counts per expert, which each subclass computes its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(EXPERTS))

    def counts(self, chosen: Tensor) -> list[int]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).argmax(dim=-1)
        pieces = x[chosen.argsort()].split(self.counts(chosen))
        return torch.cat([expert(piece) for expert, piece in zip(self.experts, pieces, strict=True)])


class ByBincount(Routed):
    def counts(self, chosen: Tensor) -> list[int]:
        return torch.bincount(chosen, minlength=EXPERTS).tolist()


class ByOneHot(Routed):
    def counts(self, chosen: Tensor) -> list[int]:
        return F.one_hot(chosen, EXPERTS).sum(dim=0).cpu().numpy().tolist()


class ByScatter(Routed):
    def counts(self, chosen: Tensor) -> list[int]:
        table = chosen.new_zeros((chosen.shape[0], EXPERTS))
        table.scatter_(1, chosen.unsqueeze(1), 1)
        return table.long().sum(0).tolist()


class ByRunningSum(Routed):
    def counts(self, chosen: Tensor) -> list[int]:
        ends = torch.bincount(chosen, minlength=EXPERTS).cumsum(0).tolist()
        return [end - start for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("routed", [ByBincount, ByOneHot, ByScatter, ByRunningSum])
def test_tokens_are_spread_evenly_and_none_is_lost(routed: type[Routed]) -> None:
    graph = tclint.trace(routed, torch.empty(TOKENS, 8))
    rows = [op.inputs[0].shape[0] for op in graph.ops if op.module_path.startswith("experts.")]
    assert rows == [8, 8, 7, 7]
    assert any("counts" in assumption.what for assumption in graph.assumptions)


class Generating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 6), nn.Linear(6, 11)

    def forward(self, word: Tensor) -> Tensor:
        ended = torch.zeros_like(word, dtype=torch.bool)
        for _ in range(5):
            word = self.head(self.embedding(word)).argmax(-1)
            ended = ended | (word == 2)
            if ended.all():
                break
        return word


def test_a_generation_loop_does_not_end_at_once() -> None:
    graph = tclint.trace(Generating, torch.empty(3, dtype=torch.int64, device="meta"))
    assert sum(op.name == "linear" for op in graph.ops) == 5


class Lengths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        doubled = lengths * 2
        return torch.cat([self.fc(row[: int(length)]) for row, length in zip(x, doubled, strict=True)])


def test_few_integers_that_are_given_keep_their_values() -> None:
    graph = tclint.trace(Lengths, (torch.empty(2, 10, 4), torch.tensor([5, 2])))
    assert [op.inputs[0].shape[0] for op in graph.ops if op.name == "linear"] == [10, 4]
    assert graph.assumptions == ()
    # What is computed from them is recorded, as it will run.
    (doubled,) = [op for op in graph.ops if op.name == "mul"]
    assert doubled.inputs[0].input_name == "lengths"


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.asarray])
def test_numbers_put_on_the_inputs_device_keep_their_values(make: Callable[..., Tensor]) -> None:
    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sizes = make([x.shape[0], x.shape[1]], device=x.device)
            assert int(sizes.prod()) == x.numel()
            return x[:, : int(sizes[1])] * 2

    graph = tclint.trace(Sized, torch.empty(3, 5, device="meta"))
    assert graph.assumptions == ()
    assert graph.outputs[0].shape == (3, 5)


def test_numbers_given_by_keyword_keep_their_values() -> None:
    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, : int(torch.tensor(data=[x.shape[1] - 1], device=x.device)[0])] * 2

    graph = tclint.trace(Sized, torch.empty(3, 5, device="meta"))
    assert graph.assumptions == ()
    assert graph.outputs[0].shape == (3, 4)


def test_whole_numbers_that_numpy_asks_for_can_be_divided_by() -> None:
    class Periodic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            period = x.shape[1] // x.abs().mean(0).topk(1).indices.cpu().numpy()
            return x.reshape(x.shape[0], -1, int(period[0]))

    graph = tclint.trace(Periodic, torch.empty(2, 8))
    assert "numpy() of a traced tensor: ones assumed" in [item.what for item in graph.assumptions]


def test_integers_on_meta_are_guessed_and_it_is_said() -> None:
    graph = tclint.trace(Lengths, (torch.empty(2, 10, 4), torch.empty(2, dtype=torch.int64, device="meta")))
    assert graph.assumptions


class LargeConstant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(50_000, 4))

    def forward(self, positions: Tensor) -> Tensor:
        del positions
        index = torch.arange(2000)
        return F.one_hot(index, 50_000).to(self.table.dtype) @ self.table


def test_large_tables_made_from_constants_take_no_memory() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = tclint.trace(LargeConstant, torch.empty(1))
    assert graph.outputs[0].shape == (2000, 4)
    # The table has 100 M elements of 8 bytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


class Momentum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.online, self.slow = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.slow.weight.data = self.slow.weight.data * 0.9 + self.online.weight.data * 0.1
        return self.online(x) + self.slow(x)


def test_weights_replaced_by_assigning_data() -> None:
    graph = tclint.trace(Momentum, torch.empty(2, 4))
    (slow,) = [op for op in graph.ops if op.name == "linear" and op.module_path == "slow"]
    weight = slow.input("weight")
    assert weight is not None
    assert weight.parameter == "slow.weight"
    assert weight.producer is not None
    assert graph.ops[weight.producer].name == "add"


class Strided(nn.Module):
    def forward(self, query: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, query, query)


def test_attention_that_no_fused_kernel_takes_makes_a_row_major_result() -> None:
    graph = tclint.trace(Strided, torch.empty(2, 3, 8, 5).transpose(-1, -2))
    assert graph.ops[0].outputs[0].strides == (120, 40, 8, 1)


class Regulated(nn.Module):
    """As many frames of each phoneme as its duration says, padded to the longest sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.durations, self.out = nn.Linear(8, 1), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        durations = self.durations(x).squeeze(-1).exp().long()
        longest = int(durations.sum(dim=1).max())
        frames = x.new_zeros((x.shape[0], longest, x.shape[2]))
        for index, (sentence, counts) in enumerate(zip(x, durations, strict=True)):
            repeated = torch.repeat_interleave(sentence, counts, dim=0)
            frames[index, : repeated.shape[0]] = repeated
        return self.out(frames)


def test_counts_of_which_nothing_is_known_sum_up_like_ones() -> None:
    graph = tclint.trace(Regulated, torch.empty(3, 20, 8))
    assert graph.outputs[0].shape == (3, 20, 8)
    assert any("20 assumed" in assumption.what for assumption in graph.assumptions)


class Sampled(nn.Module):
    """A distribution checks its parameters for NaN by comparing them with themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.distributions.Categorical(logits=self.fc(x)).entropy()


def test_values_equal_themselves() -> None:
    graph = tclint.trace(Sampled, torch.empty(3, 8))
    assert graph.outputs[0].shape == (3,)
    assert graph.metadata["adjustments"] == []


class OneClassMore(nn.Module):
    """Experts looped over where a token chose them; one more class stands for tokens that go elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).topk(2, dim=-1).indices
        mask = F.one_hot(chosen, num_classes=EXPERTS + 1).permute(2, 1, 0)
        result = torch.zeros_like(x)
        for which in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            _, token = torch.where(mask[which[0]])
            result.index_add_(0, token, self.experts[0](x[token]))
        return result


def test_a_class_that_nobody_can_choose_has_no_tokens() -> None:
    graph = tclint.trace(OneClassMore, torch.empty(TOKENS, 8, device="meta"))
    rows = [op.inputs[0].shape[0] for op in graph.ops if op.name == "linear"]
    assert rows == [TOKENS] + [2 * TOKENS // EXPERTS] * EXPERTS
