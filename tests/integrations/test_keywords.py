"""One spelling: the functions of Python, the fixture and the magic take the options of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tclint  # noqa: E402
from tclint.core.errors import UsageError  # noqa: E402
from tclint.integrations.pytest_plugin import check_ready  # noqa: E402

BATCH = torch.zeros(256, 512)


def build() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(512, 500), torch.nn.Dropout(), torch.nn.Linear(500, 512))


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tclint]\ngpu = "t4"\nprecision = "fp16"\n')
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "gpus", "precision"),
    [
        ({}, ["t4"], "fp16"),
        ({"gpu": "h100"}, ["h100-sxm5-80gb"], "fp16"),
        ({"gpu": ("a100", "h100"), "precision": "bf16"}, ["a100-sxm4-80gb", "h100-sxm5-80gb"], "bf16"),
        ({"gpu": "a100,h100"}, ["a100-sxm4-80gb", "h100-sxm5-80gb"], "fp16"),
    ],
)
def test_every_way_prices_the_same(options: dict[str, Any], gpus: list[str], precision: str) -> None:
    graph = tclint.trace(build(), BATCH)
    reports = [
        tclint.check(build(), inputs=BATCH, **options),
        tclint.check(build, input="256,512", **options),
        tclint.check(graph, **options),
        check_ready(graph, min_readiness=0, **options),
    ]
    for report in reports:
        [entry] = report.entries
        assert (list(entry.metrics), entry.precision) == (gpus, precision)
    steps = [
        {gpu: metrics.step_time_us for gpu, metrics in one.entries[0].metrics.items()} for one in reports
    ]
    assert steps == [steps[0]] * 4
    for gpu in gpus:
        for of in (graph, build()):
            given = None if of is graph else BATCH
            estimate = tclint.estimate(of, **{**options, "gpu": [gpu]}, inputs=given)
            assert estimate.step_time_us == pytest.approx(steps[0][gpu])


def test_a_trace_is_of_the_mode_and_the_inputs_that_options_give() -> None:
    def names(**options: Any) -> list[str]:
        return [op.name for op in tclint.trace(build(), **options).ops]

    assert any("dropout" in name for name in names(inputs=BATCH))
    assert not any("dropout" in name for name in names(inputs=BATCH, mode="infer"))
    assert not any("dropout" in name for name in names(input="8,512", mode="infer"))
    assert tclint.trace(build, input="8,512").inputs[0].shape == (8, 512)
    assert tclint.trace(build(), batch=16).inputs[0].shape[0] == 16
    assert build().training, "what was given stays as it was"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda _: tclint.check(build(), gpuu="h100"), "There is no option 'gpuu'. Did you mean 'gpu'?"),
        (
            lambda _: tclint.trace(build(), BATCH, mod="infer"),
            "There is no option 'mod'.",
        ),
        (
            lambda graph: tclint.estimate(graph, precision="fp17"),
            "The option 'precision' expects one of",
        ),
        (
            lambda graph: tclint.estimate(graph, gpu=["a100", "h100"]),
            "An estimate is of one GPU: ",
        ),
        (
            lambda graph: tclint.check(graph, tclint.Settings(), gpu="t4"),
            "settings or options, not both",
        ),
        (lambda graph: tclint.check(graph, inputs=BATCH), "A graph has its inputs already"),
        (lambda _: tclint.check("net.py:build", inputs=BATCH), "of a named target, input= gives"),
        (lambda _: tclint.check([build(), build()], inputs=BATCH), "inputs= goes with one model"),
        (
            lambda _: tclint.trace(build(), input_set=["8,512", "9,512"]),
            "of one set of inputs",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(wrong: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        wrong(tclint.trace(build(), BATCH))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
