"""SARIF against the OASIS schema, GitHub's list of required properties, and its limits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from hostile import HOSTILE, hostile_report, hostile_text, many_findings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from official_schemas import published_schema
from sample_report import BACKWARD, ENTRY, STEM, VOCABULARY

from tclint.config.settings import Settings
from tclint.core.finding import Edit, Fix, Location, Related
from tclint.core.rule import CRASH_CODE, CRASH_NAME
from tclint.engine.report import Report
from tclint.report.formats import sarif
from tclint.report.formats.sarif import MAX_RUNS
from tclint.report.paths import line_hashes, relative_uri
from tclint.report.render import render

SCHEMA_URL = "https://json.schemastore.org/sarif-2.1.0.json"


@pytest.fixture(scope="session")
def validator() -> Any:
    schema = published_schema(SCHEMA_URL)
    assert schema["$id"].endswith("oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json")
    return jsonschema.validators.validator_for(schema)(schema)


@pytest.fixture
def log(validator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Renders and validates a report in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def rendered(report: Report) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(render(report, "sarif"), parse_constant=pytest.fail)
        error = jsonschema.exceptions.best_match(validator.iter_errors(document))
        assert error is None, error
        check_what_github_requires(document)
        return document

    return rendered


def check_what_github_requires(document: dict[str, Any]) -> None:
    """GitHub Docs, 'SARIF support for code scanning': required properties are there and not empty."""
    assert document["$schema"] == SCHEMA_URL
    assert document["version"] == "2.1.0"
    assert 1 <= len(document["runs"]) <= MAX_RUNS
    categories = [run["automationDetails"]["id"] for run in document["runs"]]
    assert len(set(categories)) == len(categories)
    for run in document["runs"]:
        assert run["automationDetails"]["id"].endswith("/")
        driver = run["tool"]["driver"]
        assert driver["name"]
        assert len(run["results"]) <= sarif.MAX_RESULTS
        for rule in driver["rules"]:
            assert rule["id"]
            assert len(rule["name"]) <= 255
            for part in ("shortDescription", "fullDescription"):
                assert 0 < len(rule[part]["text"]) <= 1024
            assert rule["help"]["text"]
            assert rule["help"]["markdown"]
            assert rule["defaultConfiguration"]["level"] in ("note", "warning", "error")
            assert rule["properties"]["precision"] in ("very-high", "high", "medium", "low")
            assert rule["properties"]["problem.severity"] in ("error", "warning", "recommendation")
            assert len(rule["properties"]["tags"]) <= 10
        for result in run["results"]:
            assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["message"]["text"]
            assert result["partialFingerprints"]["primaryLocationLineHash"]
            assert len(result["locations"]) == 1
            for location in (*result["locations"], *result.get("relatedLocations", [])):
                physical = location["physicalLocation"]
                assert physical["artifactLocation"]["uri"]
                region = physical["region"]
                assert set(region) == {"startLine", "startColumn", "endLine", "endColumn"}
                start = (region["startLine"], region["startColumn"])
                assert start < (region["endLine"], region["endColumn"])


def results_of(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {run["automationDetails"]["id"]: run["results"] for run in document["runs"]}


def test_whole_report(report: Report, log: Any) -> None:
    document = log(report)
    results = results_of(document)
    assert {name: [result["ruleId"] for result in found] for name, found in results.items()} == {
        "tclint/model.py:LanguageModel/": ["DIM003", "DIM002"],
        "tclint/sources/": ["AMP006"],
    }
    vocabulary, stem = results["tclint/model.py:LanguageModel/"]
    physical = vocabulary["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "model.py", "uriBaseId": "%SRCROOT%"}
    assert physical["region"] == {"startLine": 7, "startColumn": 24, "endLine": 7, "endColumn": 57}
    assert vocabulary["relatedLocations"][0]["message"]["text"] == "the embedding that shares its weight"
    assert (vocabulary["level"], stem["level"]) == ("warning", "note")
    assert vocabulary["partialFingerprints"]["tclint/v1"] == VOCABULARY.fingerprint
    model, sources = document["runs"]
    assert model["properties"]["entries"][0]["readinessPercent"]["a100-sxm4-80gb"] == 61.25
    assert sources["invocations"][0]["executionSuccessful"] is False
    notice = sources["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    assert "no such size" in notice


def test_the_end_of_the_line_where_a_finding_names_none(report: Report, log: Any) -> None:
    stem = results_of(log(report))["tclint/model.py:LanguageModel/"][1]
    line = Path("model.py").read_text().splitlines()[7]
    region = stem["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 8, "startColumn": 1, "endLine": 8, "endColumn": len(line) + 1}


def test_only_rules_that_found_something_are_described(report: Report, log: Any) -> None:
    described = [[rule["id"] for rule in run["tool"]["driver"]["rules"]] for run in log(report)["runs"]]
    assert described == [["DIM002", "DIM003"], ["AMP006"]]
    page = log(report)["runs"][0]["tool"]["driver"]["rules"][1]["help"]["markdown"]
    assert "## What it does" in page
    assert "```python" in page
    assert log(Report(settings=Settings()))["runs"][0]["tool"]["driver"]["rules"] == []


def test_edits_are_fixes(report: Report, log: Any) -> None:
    edit = Edit("train.py", (3, 1), (3, 5), "")
    fixed = replace(BACKWARD, fix=Fix("Move it.", "unsafe", (edit,)))
    (result,) = results_of(log(replace(report, findings=(fixed,))))["tclint/sources/"]
    (fix,) = result["fixes"]
    (change,) = fix["artifactChanges"]
    assert fix["description"]["text"] == "Move it. (unsafe)"
    assert change["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 3, "startColumn": 1, "endLine": 3, "endColumn": 5},
            "insertedContent": {"text": ""},
        }
    ]
    advice = replace(BACKWARD, fix=Fix("Move it."))
    assert "fixes" not in results_of(log(replace(report, findings=(advice,))))["tclint/sources/"][0]


def test_findings_of_unknown_rules_are_described_too(log: Any) -> None:
    crash = replace(BACKWARD, code=CRASH_CODE, name=CRASH_NAME)
    other = replace(BACKWARD, code="XYZ999", name="somebody-elses-rule")
    rules = log(Report(settings=Settings(), findings=(crash, other)))["runs"][0]["tool"]["driver"]["rules"]
    help_of = {rule["id"]: rule["help"]["text"] for rule in rules}
    assert "raised an exception" in help_of[CRASH_CODE]
    assert "somebody-elses-rule" in help_of["XYZ999"]


def test_rules_that_cannot_be_imported_any_more(log: Any) -> None:
    missing = Settings(rules=("no/such/folder",))
    assert log(Report(settings=missing, findings=(BACKWARD,)))["runs"][0]["results"]


def test_a_run_per_model_up_to_the_limit(log: Any) -> None:
    entries = tuple(replace(ENTRY, target=f"m{number}.py:build") for number in range(40))
    findings = (*tuple(replace(STEM, target=entry.target) for entry in entries), BACKWARD)
    document = log(Report(settings=Settings(), entries=entries, findings=findings))
    results = results_of(document)
    assert len(results) == MAX_RUNS
    assert len(results["tclint/m0.py:build/"]) == 1
    assert len(results["tclint/other models/"]) == 40 - (MAX_RUNS - 2)
    assert len(results["tclint/sources/"]) == 1
    assert sum(map(len, results.values())) == len(findings)


def test_most_important_results_within_the_limit(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sarif.MAX_RESULTS == 5_000, "of one run, as GitHub takes it"
    monkeypatch.setattr(sarif, "MAX_RESULTS", 20)
    run = log(many_findings(50))["runs"][0]
    assert len(run["results"]) == 20
    assert run["results"][0]["message"]["text"].startswith("Finding 0:")
    notice = run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    assert notice.startswith("30 findings of lower rank are left out")


def test_long_texts_and_many_places_are_cut(log: Any) -> None:
    long = replace(
        VOCABULARY,
        message="x" * 100_000,
        evidence={"all": "y" * 100_000},
        related=tuple(Related(Location("a.py", line), "here") for line in range(1, 2000)),
    )
    result = log(Report(settings=Settings(), findings=(long,)))["runs"][0]["results"][0]
    assert len(result["message"]["text"]) <= 4_000
    assert len(result["relatedLocations"]) == 100
    assert "left_out" in result["properties"]["evidence"]


def test_brackets_are_no_links(log: Any) -> None:
    finding = replace(VOCABULARY, message="layers[0] of [x](1)")
    text = log(Report(settings=Settings(), findings=(finding,)))["runs"][0]["results"][0]["message"]["text"]
    assert text.startswith(r"layers\[0\] of \[x\](1)")


def test_odd_positions_become_regions(log: Any) -> None:
    positions = ((0, 0, None, None), (5, 9, 3, 1), (5, 9, 5, 2), (2, 1, 7, 1), (10**6, 3, None, None))
    findings = tuple(replace(VOCABULARY, location=Location("model.py", *place)) for place in positions)
    log(Report(settings=Settings(), findings=findings))


def test_line_hash_is_the_upload_actions() -> None:
    """Values that the action's own tests expect."""
    assert line_hashes("") == ["c129715d7a2bc9a3:1"]
    assert line_hashes(" a\nb\n  \t\tc\n d") == [
        "271789c17abda88f:1",
        "54703d4cd895b18:1",
        "180aee12dab6264:1",
        "a23a3dc5e078b07b:1",
    ]


@given(st.text("ab \t\n\r", max_size=300))
def test_line_hashes_ignore_blanks_and_kinds_of_line_ends(text: str) -> None:
    text = text.replace("\r", "")
    expected = line_hashes(text)
    assert len(expected) == text.count("\n") + 1
    assert len(set(expected)) == len(expected)
    assert line_hashes(text.replace("\n", "\r\n")) == expected
    assert line_hashes(text.replace("a", " \ta ")) == expected


def test_line_hash_survives_moving_the_line(log: Any) -> None:
    after = "".join(f"y{number} = {number}\n" for number in range(60))
    Path("model.py").write_text(f"a\nb\nlm_head = 1\n{after}")
    first = log(
        Report(settings=Settings(), findings=(replace(VOCABULARY, location=Location("model.py", 3)),))
    )
    Path("model.py").write_text(f"a\nb\nnew\nlines\nlm_head = 1\n{after}")
    second = log(
        Report(settings=Settings(), findings=(replace(VOCABULARY, location=Location("model.py", 5)),))
    )
    hashes = [
        document["runs"][0]["results"][0]["partialFingerprints"]["primaryLocationLineHash"]
        for document in (first, second)
    ]
    assert hashes[0] == hashes[1]


def test_paths_are_percent_encoded_from_the_root(log: Any, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for path, uri in (
        ("a b/c#d?e%f.py", "a%20b/c%23d%3Fe%25f.py"),
        ("c:d.py", "c%3Ad.py"),
        ("caf\u00e9.py", "caf%C3%A9.py"),
        ("caf\udce9.py", "caf%E9.py"),
    ):
        finding = replace(VOCABULARY, location=Location(path, 1), related=())
        result = log(Report(settings=Settings(), findings=(finding,)))["runs"][0]["results"][0]
        artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert artifact == {"uri": uri, "uriBaseId": "%SRCROOT%"}


def test_a_file_outside_the_repository_is_absolute(log: Any, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    finding = replace(VOCABULARY, location=Location("../lib.py", 1), related=())
    result = log(Report(settings=Settings(), findings=(finding,)))["runs"][0]["results"][0]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": f"file://{tmp_path.parent}/lib.py"}


@given(hostile_text)
def test_uris_are_ascii_and_read_back(path: str) -> None:
    uri = relative_uri(path)
    assert uri.isascii()
    assert not set(uri) & set(' "<>\\^`{|}#?\n')
    if not any("\ud800" <= character <= "\udfff" for character in path):
        assert unquote(uri, errors="strict") == path


@pytest.mark.parametrize("text", HOSTILE)
def test_known_attacks(text: str, log: Any) -> None:
    document = log(hostile_report(text, text, text, text))
    shown = json.dumps(document, ensure_ascii=False)
    shown.encode("utf-8")
    results = [result for run in document["runs"] for result in run["results"]]
    assert len(results) == 2
    assert not any("\x1b" in result["message"]["text"] for result in results)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=hostile_text, layer=hostile_text, message=hostile_text)
def test_any_text(path: str, layer: str, message: str, log: Any) -> None:
    log(hostile_report(path, layer, message))


def test_folders_of_a_repository_have_categories_of_their_own(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "packages" / "a"
    folder.mkdir(parents=True)
    found = []
    for where in (tmp_path, folder):
        monkeypatch.chdir(where)
        document = json.loads(render(report, "sarif"))
        found.append([run["automationDetails"]["id"] for run in document["runs"]])
    assert found[0][-1] == "tclint/sources/"
    assert found[1] == [name.replace("tclint/", "tclint/packages/a/", 1) for name in found[0]]
