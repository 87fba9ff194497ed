"""What every rule says about itself: stable identity, documentation, sources."""

from __future__ import annotations

import ast
import re
import textwrap

import pytest

from tclint.core.rule import Rule
from tclint.cost.gpu import all_gpus
from tclint.engine.rules.registry import all_rules
from tclint.report.catalogue import documents, references
from tclint.source.source_rule import SourceRule

RULES = all_rules()
FAMILIES = {"DIM", "FMT", "ARC", "AMP", "PRC", "RUN"}

rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_codes_and_names_are_unique() -> None:
    """One class for each side of a rule, and one name for each code."""
    assert len({(rule.code, issubclass(rule, SourceRule)) for rule in RULES}) == len(RULES)
    pairs = {(rule.code, rule.name) for rule in RULES}
    assert len({code for code, _ in pairs}) == len({name for _, name in pairs}) == len(pairs)


@rules
def test_identity(rule: type[Rule]) -> None:
    """What loading does not ask of everyone's rules."""
    assert rule.code[:3] in FAMILIES
    # Low-confidence rules would cry wolf by default.
    assert rule.enabled_by_default or rule.confidence != "high"
    assert not (rule.enabled_by_default and rule.confidence == "low")


@rules
def test_documentation_reads_well(rule: type[Rule]) -> None:
    assert rule.summary().endswith(".")
    assert len(rule.summary()) <= 110
    for heading in ("Example", "Use instead"):
        assert rule.sections()[heading].startswith("    "), "code is indented, so that it renders as code"


@rules
def test_sources_say_where_and_what(rule: type[Rule]) -> None:
    """'Document, section: claim'; the section may be missing."""
    for reference in references((rule,)):
        assert ": " in reference.rest, f"{reference.document}{reference.rest} claims nothing"
        assert reference.url is not None, f"rules/documents.toml does not know {reference.document!r}"


def test_every_known_document_is_named_by_a_rule() -> None:
    named = {reference.document for reference in references(RULES)}
    assert set(documents()) <= named
    assert all(re.fullmatch(r"https://[^\s()<>\"]+", url) for url in documents().values())


@rules
def test_examples_are_python(rule: type[Rule]) -> None:
    for heading in ("Example", "Use instead"):
        ast.parse(textwrap.dedent(rule.sections()[heading]))


def test_no_gpu_runs_float64_faster_than_its_rule_says() -> None:
    """PRC007: at most 1/7 of the Tensor Cores' rate, and as fast as float32 on A100, A30, H100 and kin."""
    of_float32 = {}
    for gpu in all_gpus():
        rates = gpu.peak_tflops
        assert rates["fp64"] <= max(rates["fp16"], rates.get("tf32", 0.0)) / 7, gpu.id
        of_float32[gpu.id.split("-")[0]] = round(rates["fp64"] / rates["fp32"], 2)
    assert {name for name, share in of_float32.items() if share == 1.0} == {
        *("a100", "a30", "h100", "h200", "gh200")
    }
    assert {name for name, share in of_float32.items() if 0.4 < share < 1.0} == {"v100", "v100s", "b200"}
    assert all(share in (1.0, 0.5, 0.49, 0.03, 0.02, 0.01) for share in of_float32.values())
