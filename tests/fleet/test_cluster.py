"""`--scheduler`: jobs on workers of dask.distributed, one of them killed; nothing lost, nothing double."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tclint.cli.main import cli
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.fleet import bulk, cluster
from tclint.fleet.bulk import files_of
from tclint.fleet.cluster import IN_FLIGHT, Lost, Workplace, completed, connected
from tclint.fleet.prices import Family, Pricing, price_families
from tclint.fleet.targets import Task
from tclint.graph.ops import Graph

MODELS = """
import torch
from torch import nn

def small():
    return nn.Linear(512, 64), (torch.zeros(256, 512),)

def large():
    return nn.Linear(512, 1000), (torch.zeros(256, 512),)

def fails():
    raise ValueError("no such model")
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """Four worker processes of one thread; a job that ends two of them is not tried again.

    The tests end three, and on a busy machine dask may not bring any of them back.
    """
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as found,
    ):
        yield found


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo.py").write_text(MODELS)


def one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """All targets of a run in one, so that one process imports torch for them."""
    monkeypatch.setattr(cluster, "thread_count", lambda _: 1)
    monkeypatch.setattr(bulk, "LEAST_JOBS", 1)


def test_results_are_those_of_this_machine(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one_job(monkeypatch)
    targets = ["zoo.py:small", "zoo.py:large", "zoo.py:fails"]
    arguments = ["fleet", *targets, "--gpu", "a100", "--isolated"]
    outputs = []
    for more in ([], ["--scheduler", workers.scheduler_address]):
        result = CliRunner().invoke(cli, [*arguments, *more])
        assert result.exit_code == 2
        assert "no such model" in result.stderr
        outputs.append(sorted(json.dumps(record) for record in _without_seconds(result.stdout)))
    assert outputs[0] == outputs[1]
    kinds = [json.loads(line)["type"] for line in outputs[0]]
    assert (kinds.count("run"), kinds.count("entry"), kinds.count("error")) == (1, 2, 1)


def _without_seconds(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        record = json.loads(line)
        record.pop("seconds", None)
        record.pop("provenance", None)
        yield record


def test_points_cost_the_same(workers: Any) -> None:
    graph = Graph((), (), (), (), {})
    points = tuple((number,) for number in range(120))
    families = [Family(graph, {}, points), Family(graph, {}, points[:7])]
    pricing = Pricing(Settings(gpus=("a100-sxm4-80gb",), jobs=1), ("fp16",))
    found = list(price_families(pricing, families, None, workers.scheduler_address))
    assert len(found) == 127
    assert repr(found) == repr(list(price_families(pricing, families, None)))


def test_a_worker_is_killed_in_the_middle(workers: Any, tmp_path: Path) -> None:
    """Its jobs run again on the others, and no more than a few of them wait at the scheduler."""
    with connected(workers.scheduler_address, Workplace.here([])) as client:
        submitted: list[Any] = []
        submit = client.submit

        def counted(*arguments: Any, **options: Any) -> Any:
            submitted.append(arguments)
            return submit(*arguments, **options)

        client.submit = counted
        results = []
        slow = lambda number: (__import__("time").sleep(0.2), number**2)[1]  # noqa: E731
        for position, square in completed(client, slow, [(number,) for number in range(14)]):
            results.append((position, square))
            assert len(submitted) - len(results) <= IN_FLIGHT * 4
            if len(results) == 3:
                os.kill(workers.workers[0].pid, signal.SIGKILL)
    assert sorted(results) == [(number, number**2) for number in range(14)]


def test_a_job_that_ends_its_workers_costs_only_itself(workers: Any) -> None:
    with connected(workers.scheduler_address, Workplace.here([])) as client:
        ends = lambda number: __import__("os")._exit(1) if number == 1 else number  # noqa: E731
        results = dict(completed(client, ends, [(number,) for number in range(4)], at_once=1))
    assert isinstance(results[1], Lost)
    assert [results[number] for number in (0, 2, 3)] == [0, 2, 3]


def test_targets_that_ended_their_workers_are_tried_alone(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, list[str]]] = []

    def some_are_lost(_client: Any, _lint: Any, jobs: Any, at_once: int = 0) -> Iterator[tuple[int, Any]]:
        for at, (_, tasks) in enumerate(jobs):
            names = [task.name for task in tasks]
            tried.append((at_once, names))
            done = [bulk.Done(name, "", (), 0) for name in names]
            yield at, Lost("twice") if "zoo.py:large" in names else done

    monkeypatch.setattr(cluster, "completed", some_are_lost)
    one_job(monkeypatch)
    tasks = [Task(name, name, Settings()) for name in ("zoo.py:small", "zoo.py:large")]
    found = {done.name: done for done in bulk.check_tasks(tasks, 1, scheduler=workers.scheduler_address)}
    assert tried == [(0, ["zoo.py:small", "zoo.py:large"]), (1, ["zoo.py:small"]), (1, ["zoo.py:large"])]
    assert found["zoo.py:small"].errors == ()
    (message,) = found["zoo.py:large"].errors
    assert message.startswith("zoo.py:large was lost with every process that linted it")
    assert json.loads(found["zoo.py:large"].lines.splitlines()[-1])["type"] == "error"


def test_a_worker_without_the_same_files_is_refused(workers: Any) -> None:
    place = Workplace.here(files_of(Task("zoo.py:small", "zoo.py:small", Settings())))
    assert [file for file, _ in place.digests] == ["zoo.py"]
    Path("zoo.py").write_text(MODELS + "\n")
    with pytest.raises(UsageError, match=r"zoo.py' is missing there, or another file than here; give all"):
        connected(workers.scheduler_address, place).__enter__()
    with pytest.raises(UsageError, match="another file than here"), place.entered():
        raise AssertionError


def test_what_a_worker_may_lack(tmp_path: Path) -> None:
    assert Workplace.here(["zoo.py"]).problem() == ""
    here = Workplace.here([])
    other = Workplace(here.folder, (), (("tensorcore-lint", "0.0.1"), *here.versions[1:]))
    assert "it has tensorcore-lint" in other.problem()
    assert "has no folder" in Workplace(str(tmp_path / "gone"), (), here.versions).problem()
    assert files_of(Task("timm:resnet50", "timm:resnet50", Settings())) == []


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECTED_WITHIN_S", 1)
    result = CliRunner().invoke(
        cli, ["fleet", "zoo.py:small", "--scheduler", "tcp://127.0.0.1:9", "--isolated"]
    )
    assert result.exit_code == 2
    assert "There is no scheduler of dask at 'tcp://127.0.0.1:9'" in result.stderr.splitlines()[-1]


def test_dask_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    result = CliRunner().invoke(
        cli, ["fleet", "zoo.py:small", "--scheduler", "tcp://127.0.0.1:9", "--isolated"]
    )
    assert result.exit_code == 2
    assert "install 'tensorcore-lint[fleet]' here and on the workers" in result.stderr
