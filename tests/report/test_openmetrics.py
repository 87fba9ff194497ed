"""OpenMetrics read by the parser of prometheus_client."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import HOSTILE, hostile_report, hostile_text
from hypothesis import HealthCheck, given, settings
from sample_report import BACKWARD, ENTRY, metrics

from tclint import __version__
from tclint.config.settings import Settings
from tclint.core.text import printable
from tclint.engine.report import Report
from tclint.report.formats.openmetrics import label_set
from tclint.report.metrics import ENTRY_METRICS, GPU_METRICS, RUN_METRICS
from tclint.report.render import render

parser = pytest.importorskip("prometheus_client.openmetrics.parser")
text_string_to_metric_families = pytest.importorskip(
    "prometheus_client.parser"
).text_string_to_metric_families

A100 = {
    "target": "model.py:LanguageModel",
    "model": "LanguageModel",
    "gpu": "a100-sxm4-80gb",
    "precision": "fp16",
    "mode": "train",
}


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Values by sample name and labels; the parser refuses what breaks the specification."""
    assert text.endswith("\n# EOF\n")
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("gauge",)
        if family.unit:
            assert family.name.endswith(f"_{family.unit}")
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_whole_report_in_base_units(report: Report) -> None:
    found = samples(render(report, "openmetrics"))
    assert found[of("tclint_step_time_seconds", **A100)] == pytest.approx(0.0421)
    assert found[of("tclint_readiness_ratio", **A100)] == pytest.approx(0.6125)
    assert found[of("tclint_phase_time_seconds", **A100, phase="backward")] == pytest.approx(0.02105)
    assert found[of("tclint_findings", rule="DIM003", level="warning")] == 1
    assert found[of("tclint_findings_suppressed")] == 2
    assert found[of("tclint_findings_baselined")] == 0
    assert found[of("tclint_target_errors")] == 1
    build = next(dict(labels) for name, labels in found if name == "tclint_build_info")
    assert build["version"] == __version__
    assert build["schema_version"] == "1.0"


def test_unavailable_metrics_have_no_sample(report: Report) -> None:
    found = samples(render(report, "openmetrics"))
    ceilings = [dict(labels)["gpu"] for name, labels in found if name == "tclint_speedup_ceiling_ratio"]
    assert ceilings == ["a100-sxm4-80gb"]


def test_step_time_in_every_precision() -> None:
    gpu = metrics("a100-sxm4-80gb", 1000.0, step_time_us_by_precision={"fp16": 1000.0, "tf32": 2500.0})
    entry = replace(ENTRY, metrics={"a100-sxm4-80gb": gpu})
    found = samples(render(Report(settings=Settings(), entries=(entry,)), "openmetrics"))
    assert found[of("tclint_step_time_seconds", **{**A100, "precision": "tf32"})] == pytest.approx(0.0025)
    assert of("tclint_step_time_seconds", **{**A100, "precision": "bf16"}) not in found


def test_empty_report() -> None:
    found = samples(render(Report(settings=Settings()), "openmetrics"))
    assert found[of("tclint_source_files")] == 0


@given(value=hostile_text)
def test_label_values_read_back(value: str) -> None:
    text = f"# TYPE x gauge\n# HELP x h\nx{label_set({'a': value})} 1\n# EOF\n"
    (family,) = parser.text_string_to_metric_families(text)
    assert family.samples[0].labels["a"] == "\n".join(printable(line) for line in value.split("\n"))


@pytest.mark.parametrize("text", HOSTILE)
def test_known_attacks(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rendered = render(hostile_report(text, text, text, text), "openmetrics")
    assert samples(rendered)
    assert "\x1b" not in rendered
    rendered.encode("utf-8")


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=hostile_text, layer=hostile_text, code=hostile_text)
def test_any_text(path: str, layer: str, code: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    report = hostile_report(path, layer, code)
    odd = (*report.findings, replace(BACKWARD, code=code))
    assert samples(render(replace(report, findings=odd), "openmetrics"))


def test_the_older_text_format_takes_it_too(report: Report) -> None:
    """node_exporter's textfile collector reads Prometheus' text format 0.0.4 (expfmt.TextParser): these types
    alone, no timestamps, and in help texts no escape but of backslash and line feed."""
    text = render(report, "openmetrics")
    kinds = [line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")]
    assert set(kinds) == {"gauge"}
    helps = [line.split(" ", 3)[3] for line in text.splitlines() if line.startswith("# HELP")]
    assert len(helps) == len(kinds)
    assert not [said for said in helps if "\\" in said or '"' in said]
    older = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.timestamp is None
    }
    assert older == samples(text)


DASHBOARD = Path(__file__).parents[2] / "docs" / "dashboards" / "tclint.json"


def test_the_dashboard_asks_for_series_that_exist(report: Report) -> None:
    """Names and labels in its queries, against what reports and metrics.toml have."""
    known = {name for name, _ in samples(render(report, "openmetrics"))}
    known |= {
        metric.family for metrics in (GPU_METRICS, ENTRY_METRICS, RUN_METRICS) for metric in metrics.values()
    }
    labels = {*A100, "rule", "level", "phase", "part", "version", "hash", "torch", "commit", "instance", "le"}
    document = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    queries += [
        variable["query"] for variable in document["templating"]["list"] if variable["type"] == "query"
    ]
    assert len(queries) > 8
    for query in queries:
        named = set(re.findall(r"\btclint_\w+", query))
        assert named, query
        assert named <= known, query
        selected = re.findall(r"(\w+)=~?\"", query)
        grouped = [name for part in re.findall(r"(?:by|on|label_values)\s*\(([^)]*)\)", query)
                   for name in re.findall(r"\b\w+\b", part.rpartition("}")[2])]  # fmt: skip
        assert {*selected, *grouped} <= labels | known, query
    ids = [panel["id"] for panel in document["panels"]]
    assert len(ids) == len(set(ids))
