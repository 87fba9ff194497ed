"""The JSON report against its schema and its contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from sample_report import BACKWARD, ENTRY, VOCABULARY

import tclint
from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.core.finding import Edit, Effect, Fix, Location
from tclint.engine.report import Report
from tclint.graph.ops import Assumption, Site
from tclint.report.formats.json import schema
from tclint.report.render import render

VALIDATOR = Draft202012Validator(schema())


def document(report: Report) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(render(report, "json"), parse_constant=pytest.fail)
    VALIDATOR.validate(data)
    return data


def test_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())


def test_full_report_validates(report: Report) -> None:
    data = document(report)
    assert [finding["code"] for finding in data["findings"]] == ["AMP006", "DIM003", "DIM002"]
    assert data["findings"][1]["effect"]["a100-sxm4-80gb"]["gain_us"] == 4210.0
    assert data["findings"][0]["effect"] == {"unknown": BACKWARD.effect.unknown}
    assert data["entries"][0]["not_analysed"] == [
        {"name": "fft_rfft", "reason": "no formula", "count": 2, "flops": None, "flops_percent": None}
    ]
    assert data["errors"] == [{"target": "broken.py:build", "message": report.errors[0].message}]
    assert data["summary"]["exit_code"] == 2


def test_contract_names(report: Report) -> None:
    """The names that other tools rely on; this list only grows."""
    data = document(report)
    assert {"schema_version", "tool", "entries", "findings", "skipped", "errors"} <= set(data)
    entry = data["entries"][0]
    assert {"target", "mode", "metrics", "flops", "parameters", "assumptions", "not_analysed"} <= set(entry)
    assert {"step_time_us", "readiness_percent", "tensor_core_time_percent"} <= set(
        entry["metrics"]["a100-sxm4-80gb"]
    )
    finding = data["findings"][1]
    assert {
        "code", "name", "level", "confidence", "message", "location", "related", "effect", "evidence", "fix",
        "fingerprint",
    } <= set(finding)  # fmt: skip
    assert set(finding["location"]) >= {"path", "line", "column", "end_line", "end_column", "module_path"}
    effect = finding["effect"]["v100-sxm2-16gb"]
    assert {"cost_us", "gain_us", "gain_percent", "uncertainty_percent"} <= set(effect)


def test_every_name_is_described_in_the_schema(report: Report) -> None:
    strict = json.loads(json.dumps(schema()))
    for part in _objects(strict):
        if "properties" in part and "additionalProperties" not in part:
            part["additionalProperties"] = False
    Draft202012Validator(strict).validate(json.loads(render(report, "json")))


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if part.get("type") == "object":
            yield part
        for value in part.values():
            yield from _objects(value)
    elif isinstance(part, list):
        for value in part:
            yield from _objects(value)


def test_schema_refuses_what_breaks_the_contract(report: Report) -> None:
    good = document(report)
    for breakage in (
        lambda data: data.pop("findings"),
        lambda data: data["findings"][0].pop("fingerprint"),
        lambda data: data["findings"][0].update(level="fatal"),
        lambda data: data["findings"][0].update(effect={}),
        lambda data: data["findings"][1]["effect"].update(unknown="both"),
        lambda data: data["findings"][1]["effect"]["a100-sxm4-80gb"].pop("gain_us"),
        lambda data: data["entries"][0].update(flops="many"),
    ):
        bad = json.loads(json.dumps(good))
        breakage(bad)
        assert not VALIDATOR.is_valid(bad)


def test_same_findings_same_bytes(report: Report) -> None:
    slower = replace(report, entries=(replace(ENTRY, seconds={"build": 99.0}),))
    assert render(report, "json") == render(slower, "json")
    assert tclint.render(report) == render(report, "json")


def test_empty_report(tmp_path: Path) -> None:
    data = document(Report(settings=Settings()))
    assert data["findings"] == data["entries"] == data["errors"] == []
    assert data["summary"]["exit_code"] == 0


def test_absolute_paths_become_relative(report: Report) -> None:
    here = str(Path.cwd())
    entry = replace(ENTRY, assumptions=(Assumption("guess", Site(f"{here}/sub/m.py", 3)),))
    fixed = replace(BACKWARD, fix=Fix("x", "safe", (Edit(f"{here}/train.py", (1, 1), (1, 2), ""),)))
    data = document(replace(report, entries=(entry,), findings=(fixed,)))
    assert data["entries"][0]["assumptions"][0]["path"] == "sub/m.py"
    assert data["findings"][0]["fix"]["edits"][0]["path"] == "train.py"


def test_infinite_ceiling_is_null(report: Report) -> None:
    assert document(report)["entries"][0]["metrics"]["v100-sxm2-16gb"]["amdahl_ceiling"] is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(evidence=st.dictionaries(st.text(max_size=5), json_values, max_size=4), path=st.text(min_size=1))
def test_any_evidence_and_path_give_strict_json(evidence: dict[str, Any], path: str) -> None:
    finding = replace(VOCABULARY, evidence=evidence, location=Location(path, 1), effect=Effect())
    # Else git is asked for the state of the folder each time.
    made_with = {"provenance": {"python": "3.12.1", "torch": None, "git": {"unavailable": "no repository"}}}
    text = render(Report(settings=Settings(), findings=(finding,), made_with=made_with), "json")
    text.encode("ascii")
    data = json.loads(text, parse_constant=pytest.fail)
    VALIDATOR.validate(data)
    json.dumps(data, ensure_ascii=False).encode("utf-8")


def test_undecodable_file_name_is_valid_unicode() -> None:
    finding = replace(VOCABULARY, location=Location("caf\udce9.py", 1))
    data = json.loads(render(Report(settings=Settings(), findings=(finding,)), "json"))
    assert data["findings"][0]["location"]["path"] == "caf\ufffd.py"


def test_unknown_format_names_the_closest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'json'"):
        render(Report(settings=Settings()), "jsno")
