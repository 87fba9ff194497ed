"""Checks the costs of models against `[tool.tclint.budget]`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tclint.config.budget import Limit, ModelBudget
from tclint.config.settings import Settings
from tclint.core.finding import Effect, Finding, Location
from tclint.core.rule import BUDGET_CODE, BUDGET_NAME
from tclint.core.target import is_model_target
from tclint.core.units import bytes_text, percent_text, time_text
from tclint.cost.gpu import load_gpu
from tclint.engine.report import Entry, Metrics

_GIB = 2**30


def check_gpus(settings: Settings) -> None:
    """Check that budgets name known GPUs, before anything is traced.

    Raises:
        UsageError: a budget names an unknown GPU.
    """
    with settings.saying_where("budget"):
        for model in settings.budget.models:
            for gpu, _ in (*model.step_ms, *model.readiness, *model.memory_gib):
                if gpu:
                    load_gpu(gpu, settings.calibration)


def over_budget(entries: Sequence[Entry], settings: Settings) -> list[Finding]:
    """A finding for each model that costs more than its budget, on any GPU of the run."""
    found = []
    for entry in entries:
        for budget in _budgets(entry, settings):
            exceeded = [
                text
                for metrics in entry.metrics.values()
                for text in _exceeded(budget, metrics, settings.calibration)
            ]
            if exceeded:
                found.append(_finding(entry, exceeded))
    return found


def _budgets(entry: Entry, settings: Settings) -> Iterator[ModelBudget]:
    targets = {_plain(model, settings): model for model in settings.budget.models}
    target = _absolute(entry.target.partition(" [")[0], os.getcwd())
    if target in targets:
        yield targets[target]


def _plain(budget: ModelBudget, settings: Settings) -> str:
    roots = [model.root for model in settings.models if model.target == budget.target]
    return _absolute(budget.target, roots[0] if roots else os.getcwd())


def _absolute(target: str, root: str) -> str:
    path, colon, attribute = target.rpartition(":")
    if not is_model_target(target) or not path.endswith(".py"):
        return target
    return os.path.abspath(os.path.join(root, os.path.expanduser(path))) + colon + attribute


def _exceeded(budget: ModelBudget, metrics: Metrics, calibration: str) -> Iterator[str]:
    def limit(limits: Limit) -> float | None:
        of_gpu = {load_gpu(gpu, calibration).id if gpu else "": number for gpu, number in limits}
        return of_gpu.get(metrics.gpu, of_gpu.get(""))

    step_ms, readiness, gib = limit(budget.step_ms), limit(budget.readiness), limit(budget.memory_gib)
    if step_ms is not None and metrics.step_time_us > 1e3 * step_ms:
        of = time_text(1e3 * step_ms)
        yield f"a step of {time_text(metrics.step_time_us)} on {metrics.gpu}, where {of} are allowed"
    if readiness is not None and metrics.readiness_percent < readiness:
        of, least = percent_text(metrics.readiness_percent), percent_text(readiness)
        yield f"a readiness of {of} on {metrics.gpu}, where {least} are asked for"
    if gib is not None and metrics.memory_bytes is not None and metrics.memory_bytes > gib * _GIB:
        most = bytes_text(round(gib * _GIB))
        yield f"{bytes_text(metrics.memory_bytes)} of memory on {metrics.gpu}, where {most} are allowed"


def _finding(entry: Entry, exceeded: Sequence[str]) -> Finding:
    site = None if entry.graph is None else entry.graph.root_site
    path, _, _ = entry.target.partition(" [")[0].rpartition(":")
    return Finding(
        code=BUDGET_CODE,
        name=BUDGET_NAME,
        level="error",
        confidence="high",
        message=f"The model is over its budget: {'; '.join(exceeded)}.",
        location=Location(path, 1) if site is None else Location(site.path, site.line),
        effect=Effect(unknown="what a budget allows is no matter of speed"),
        evidence={"exceeded": list(exceeded)},
        target=entry.target,
        identity=entry.target,
    )
