"""GitLab's code quality report and JUnit XML: what their readers require, and golden files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hostile import HOSTILE, hostile_report
from sample_report import STEM
from test_text_report import check_golden

from tclint.config.settings import Settings
from tclint.engine.report import Report
from tclint.report.render import render


def test_gitlab(report: Report) -> None:
    text = render(report, "gitlab")
    check_golden("gitlab.json", text)
    failed, error, warning, info = json.loads(text)
    assert [issue["severity"] for issue in (failed, error, warning, info)] == [
        "blocker",
        "critical",
        "major",
        "info",
    ]
    assert warning["location"]["positions"]["begin"] == {"line": 7, "column": 24}


def test_gitlab_fingerprints_are_unique_and_stable(report: Report) -> None:
    twice = replace(report, findings=(STEM, STEM))
    found = [issue["fingerprint"] for issue in json.loads(render(twice, "gitlab"))]
    assert len(set(found)) == 3
    assert STEM.fingerprint in found
    assert found == [issue["fingerprint"] for issue in json.loads(render(twice, "gitlab"))]


def test_junit(report: Report) -> None:
    text = render(report, "junit")
    check_golden("junit.xml", text)
    suite = ET.fromstring(text)[0]
    assert suite.attrib == {"name": "tclint", "tests": "4", "failures": "2", "errors": "1"}


@pytest.mark.parametrize(("fail_on", "failures"), [("never", 0), ("error", 1), ("info", 3)])
def test_junit_fails_what_fails_the_run(report: Report, fail_on: str, failures: int) -> None:
    settings = replace(report.settings, fail_on=fail_on)
    suite = ET.fromstring(render(replace(report, settings=settings), "junit"))[0]
    assert len(list(suite.iter("failure"))) == failures == int(suite.attrib["failures"])


def test_clean_runs() -> None:
    clean = Report(settings=Settings())
    assert json.loads(render(clean, "gitlab")) == []
    (case,) = ET.fromstring(render(clean, "junit")).iter("testcase")
    assert len(case) == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_read_back(text: str) -> None:
    hostile = hostile_report(text, text, text, text)
    ET.fromstring(render(hostile, "junit"))
    for issue in json.loads(render(hostile, "gitlab")):
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["location"]["path"]
