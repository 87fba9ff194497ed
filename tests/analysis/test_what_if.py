"""What-if tables, batch limits and what reports say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import torch
from torch import nn

import tclint
from tclint.analysis.graph_context import GraphContext
from tclint.analysis.what_if.comparisons import BatchLimits, WhatIf, batch_limits
from tclint.config.settings import COMPARISONS, Settings
from tclint.cost.gpu import all_gpus
from tclint.engine.model_pass import check_graph
from tclint.engine.report import Report
from tclint.report.formats.json import schema
from tclint.report.render import render
from tclint.report.step_text import memory_lines
from tclint.tracing import TraceResult


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(self.block(3 if not i else 64) for i in range(3)))
        self.head = nn.Linear(64, 10)

    @staticmethod
    def block(channels: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean((2, 3)))


@pytest.fixture(scope="module")
def graph() -> Any:
    return tclint.trace(Net, torch.empty(8, 3, 56, 56))


@pytest.fixture
def context(graph: Any) -> GraphContext:
    return GraphContext(graph, Settings(gpus=("a100", "v100")))


def tables(context: GraphContext, kind: Any) -> Any:
    return WhatIf(context).compare((kind,))


def test_every_gpu_is_a_row_and_the_fastest_comes_first(context: GraphContext) -> None:
    (table,) = tables(context, "gpu")
    assert {row.label for row in table.rows} == {gpu.id for gpu in all_gpus()}
    times = [row.step_time_us for row in table.rows]
    assert times == sorted(times)
    assert [row.label for row in table.rows if row.present] == ["a100-sxm4-80gb"]


@pytest.mark.parametrize("kind", [kind for kind in COMPARISONS if kind != "gpu"])
def test_each_gpu_of_the_run_has_a_table_with_the_present_row_at_1x(context: GraphContext, kind: str) -> None:
    found = tables(context, kind)
    assert [table.gpu for table in found] == ["a100-sxm4-80gb", "v100-sxm2-16gb"]
    for table in found:
        assert [row.speedup for row in table.rows if row.present] == [1.0]


def test_rows_are_estimates_of_the_same_graph(context: GraphContext, graph: Any) -> None:
    rows = {row.label: row for row in tables(context, "precision")[0].rows}
    for precision in ("fp32", "tf32", "bf16"):
        expected = tclint.estimate(graph, "a100", precision).step_time_us
        assert rows[precision].step_time_us == pytest.approx(expected)


def test_a_precision_that_the_gpu_lacks_says_what_runs_instead(context: GraphContext) -> None:
    volta = {row.label: row for row in tables(context, "precision")[1].rows}
    assert "CUDA cores" in volta["bf16"].note
    assert not volta["fp16"].note


def test_a_batch_is_priced_as_if_it_had_been_traced(context: GraphContext) -> None:
    rows = {row.label: row for row in tables(context, "batch")[0].rows}
    traced = tclint.trace(Net, torch.empty(32, 3, 56, 56))
    assert rows["32"].step_time_us == pytest.approx(tclint.estimate(traced, "a100").step_time_us)
    assert rows["32"].samples_per_s == pytest.approx(32e6 / rows["32"].step_time_us)
    assert rows["32"].memory_bytes == tclint.estimate(traced, "a100").memory.total_bytes


def test_a_model_without_convolutions_has_no_layouts() -> None:
    graph = tclint.trace(lambda: nn.Linear(64, 64), torch.empty(8, 64))
    (table,) = tables(GraphContext(graph, Settings(gpus=("a100",))), "layout")
    assert table.unavailable
    assert not table.rows


def test_a_batch_of_nothing_has_no_largest() -> None:
    graph = tclint.trace(lambda: nn.Linear(64, 64), torch.empty(0, 64))
    context = GraphContext(graph, Settings(gpus=("a100",)))
    assert batch_limits(context, context.scenarios[0]).largest is None


def test_the_largest_batch_fits_and_the_next_does_not(context: GraphContext) -> None:
    limits = batch_limits(context, context.scenarios[0])
    assert limits.batch == 8
    assert limits.largest is not None
    at_limit = GraphContext(tclint.trace(Net, torch.empty(limits.largest, 3, 56, 56)), context.settings)
    above = GraphContext(tclint.trace(Net, torch.empty(limits.largest + 1, 3, 56, 56)), context.settings)
    assert WhatIf(at_limit).compare(("compiled",))[0].rows[0].fits
    assert not WhatIf(above).compare(("compiled",))[0].rows[0].fits
    assert limits.largest_checkpointed is not None
    assert limits.largest_checkpointed > limits.largest


@pytest.fixture
def report(graph: Any) -> Report:
    settings = Settings(gpus=("a100", "v100"), compare=COMPARISONS)
    entry, *_ = check_graph(TraceResult("model.py:Net", graph, None, {}, ""), [], settings)
    return Report(settings, entries=(entry,))


def test_the_text_report_has_memory_batches_and_tables(report: Report) -> None:
    text = render(report, "text")
    assert "memory " in text
    assert "largest batch: " in text
    assert "checkpointed" in text
    for title in ("on every GPU", "in every precision", "at other batches", "eager and compiled"):
        assert title in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_json_report_follows_the_schema(report: Report) -> None:
    document = json.loads(render(report, "json"))
    jsonschema.validate(document, schema())
    metrics = document["entries"][0]["metrics"]["a100-sxm4-80gb"]
    assert metrics["memory"]["total_bytes"] == metrics["memory_bytes"]
    assert {table["kind"] for table in document["entries"][0]["comparisons"]} == set(COMPARISONS)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (BatchLimits(8, 3, 6), "the step does not fit into the memory of one a100: it does with --batch 3"),
        (BatchLimits(8, 0, 6), "it does with --batch 6 and every repeated block checkpointed"),
        (BatchLimits(8, 0, None), "not even with a batch of 1 instead of 8; --parallel fsdp splits it"),
        (BatchLimits(1, 0, None), "not even with a batch of 1; --parallel fsdp splits it over several"),
        (BatchLimits(8, 8, None), ""),
        (BatchLimits(None, None, None, "the inputs share no batch dim"), ""),
    ],
)
def test_a_step_that_does_not_fit_is_a_sentence(report: Report, limit: BatchLimits, said: str) -> None:
    (entry,) = report.entries
    metrics = {gpu: replace(each, gpu="a100", batch_limits=limit) for gpu, each in entry.metrics.items()}
    lines = [line for line in memory_lines(replace(entry, metrics=metrics)) if "fit" in line]
    assert bool(lines) == bool(said)
    assert all(said in line for line in lines)


def test_a_batch_that_no_memory_limits_is_no_number_to_rely_on(report: Report) -> None:
    (entry,) = report.entries
    metrics = {
        gpu: replace(found, batch_limits=BatchLimits(8, 132_539_889, 140_000_000, None))
        for gpu, found in entry.metrics.items()
    }
    text = " ".join(render(replace(report, entries=(replace(entry, metrics=metrics),)), "text").split())
    assert "largest batch: more than 65536 on a100-sxm4-80gb, more than 65536 on v100-sxm2-16gb" in text
    assert "132539889" not in text
