"""The graph of a padded model whose outputs are cut back is that of the model so written."""

from __future__ import annotations

import pytest

from tclint import trace
from tclint.config.settings import Settings
from tclint.cost.estimate import estimate
from tclint.cost.scenario import Scenario
from tclint.graph.dims.coupled import CoupledDims
from tclint.graph.dims.outputs import with_outputs_cut
from tclint.graph.ops import Graph

torch = pytest.importorskip("torch")
nn = torch.nn


class Words(nn.Module):
    """A language model with its loss, which sees as many words as before where the head makes more."""

    def __init__(self, width: int, words: int, kept: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words)
        self.kept = kept

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.head(self.down(self.up(self.words(ids)).relu()))
        if self.kept:
            logits = logits[..., : self.kept]
        logits = logits * 0.5
        return logits, nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def traced(width: int, words: int, kept: int = 0) -> Graph:
    ids = torch.zeros(16, 128, dtype=torch.long)
    return trace(Words(width, words, kept), ids, kwargs={"targets": ids})


@pytest.mark.parametrize("width", [510, 512])
@pytest.mark.parametrize("gpu", ["a100", "v100"])
def test_it_is_priced_as_the_model_so_written(width: int, gpu: str) -> None:
    before = traced(510, 8003)
    dims = CoupledDims(before)
    new = {510: width, 2040: 4 * width, 8003: 8064}
    sizes = {group: new[old] for old in new for group in dims.groups_of_size(old) if group.parameters}
    cut = with_outputs_cut(before, dims.resize(sizes))
    assert cut is not None
    written = traced(width, 8064, kept=8003)
    assert [(op.name, op.outputs[0].shape) for op in cut.ops] == [
        (op.name, op.outputs[0].shape) for op in written.ops
    ]
    assert [spec.shape for spec in cut.outputs] == [spec.shape for spec in before.outputs]
    scenario = Scenario.of(Settings(gpus=(gpu,)), gpu)
    steps_us = [estimate(one, scenario).step_time_us for one in (cut, written)]
    assert steps_us[0] == pytest.approx(steps_us[1], rel=1e-9)


def test_there_is_nothing_to_cut_where_no_output_grows() -> None:
    before = traced(510, 8003)
    dims = CoupledDims(before)
    sizes = {group: 2048 for group in dims.groups_of_size(2040) if group.parameters}
    assert with_outputs_cut(before, dims.resize(sizes)) is None
