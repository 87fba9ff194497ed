"""JUnit XML, which most CI servers show as test results: a test case per finding.

Elements and attributes: Jenkins's xUnit plugin, junit-10.xsd. What makes the run fail is a failure, a target
that could not be linted an error; other findings pass, with their text as output.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tclint.core.finding import LEVEL_ORDER, Finding
from tclint.core.text import printable
from tclint.engine.report import Report
from tclint.report.words import finding_text, models_text, place_text


def render(report: Report) -> str:
    """One document, ending in a newline; a clean run is one test that passed."""
    suite = ET.Element("testsuite", name="tclint")
    failures = 0
    for error in report.errors:
        case = _case(suite, error.target, error.target)
        problem = ET.SubElement(case, "error", message=printable(error.message), type="error")
        problem.text = _text(error.message)
    for finding in report.findings:
        name = f"{finding.code} {finding.name} at {place_text(finding.location)}"
        name += f" in {models_text(finding)}" if finding.targets else ""
        case = _case(suite, finding.location.path, name)
        if _fails(report, finding):
            failures += 1
            problem = ET.SubElement(case, "failure", message=printable(finding.message), type=finding.level)
        else:
            problem = ET.SubElement(case, "system-out")
        problem.text = _text(f"{place_text(finding.location)}: {finding.level}\n{finding_text(finding)}")
    if not len(suite):
        _case(suite, "tclint", "no findings")
    counts = {"tests": len(suite), "failures": failures, "errors": len(report.errors)}
    for name, number in counts.items():
        suite.set(name, str(number))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, group: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=printable(group), name=printable(name))


def _fails(report: Report, finding: Finding) -> bool:
    limit = report.settings.fail_on
    return limit != "never" and LEVEL_ORDER[finding.level] <= LEVEL_ORDER[limit]


def _text(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
