"""The report for people: golden files, what is counted, and text that tries to steer the terminal."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_report import BACKWARD, BELOW, ENTRY, STEM, VOCABULARY, gpu_effect

from tclint.config.settings import Settings
from tclint.core.finding import Edit, Effect, Fix, Location
from tclint.engine.report import EntryError, Report
from tclint.graph.ops import Assumption
from tclint.report.render import Style, render

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare with a golden file; UPDATE_GOLDEN=1 writes it, for review in the diff."""
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("name", "style"),
    [
        ("report.txt", Style()),
        ("report_quiet.txt", Style(verbosity=-1)),
        ("report_verbose.txt", Style(verbosity=1, statistics=True)),
        ("report_colour.txt", Style(colour=True)),
    ],
)
def test_golden(report: Report, name: str, style: Style) -> None:
    check_golden(name, render(report, "text", style))


def test_lines_fit_80_columns(report: Report) -> None:
    text = render(report, "text", Style(verbosity=1, statistics=True))
    assert max(len(line) for line in text.splitlines()) <= 80


def test_numbers_keep_their_units(report: Report) -> None:
    said = "it gains 1.1 % of 42 ms, 2 GiB and 3 % " * 6
    finding = replace(VOCABULARY, message=said)
    for width in range(40, 60):
        text = render(replace(report, findings=(finding,)), "text", Style(width=width))
        assert not re.search(r"\d\n +(%|ms|GiB)", text)
        assert max(map(len, text.splitlines())) <= 80
        assert "\0" not in text


def test_several_gpus_have_one_ranking_each_where_asked(report: Report) -> None:
    effect = Effect(per_gpu={"a": gpu_effect(100.0, 1000.0), "b": gpu_effect(300.0, 1000.0)})
    other = Effect(per_gpu={"a": gpu_effect(200.0, 1000.0), "b": gpu_effect(10.0, 1000.0)})
    findings = (replace(STEM, effect=effect), replace(VOCABULARY, effect=other))
    both = replace(report, findings=findings, settings=replace(report.settings, gpus=("a", "b")))
    brief = " ".join(render(both, "text").split())
    assert "ranked by their largest gain on any of the GPUs; -v ranks them on each." in brief
    said = render(both, "text", Style(verbosity=1))
    assert "  on a: DIM003 model.py:7:24 20 %; DIM002 model.py:8:1 10 %\n" in said
    assert "  on b: DIM002 model.py:8:1 30 %; DIM003 model.py:7:24 1.0 %\n" in said
    for quiet in (
        replace(both, findings=findings[:1]),
        replace(both, settings=replace(both.settings, gpus=("a",))),
    ):
        assert "ranked" not in render(quiet, "text", Style(verbosity=1))
    assert "ranked" not in render(both, "text", Style(verbosity=-1))


def test_empty_report_says_so() -> None:
    assert render(Report(settings=Settings()), "text") == "No findings in 0 files.\n"


def test_nothing_but_errors_is_not_called_clean() -> None:
    failed = Report(settings=Settings(), errors=(EntryError("m.py:f", "It hangs."),))
    assert render(failed, "text") == "error: m.py:f: It hangs.\nNothing could be linted; 1 target failed.\n"


def test_findings_of_one_file_stand_together(report: Report) -> None:
    ranked = (VOCABULARY, BACKWARD, STEM)
    text = render(replace(report, findings=ranked), "text", Style(verbosity=-1))
    places = [line.split(": ")[0] for line in text.splitlines() if line[:1].isalpha() and ".py:" in line]
    assert places[:3] == ["model.py:7:24", "model.py:8:1", "train.py:3:5"]


def test_unpriced_findings_are_counted_beside_priced_ones(report: Report) -> None:
    assert "without a predicted effect" not in render(report, "text").replace("\n", " "), "an error has none"
    slow = replace(report, findings=(*report.findings, replace(BACKWARD, level="warning")))
    assert "1 without a predicted effect" in render(slow, "text").replace("\n", " ")


def test_inherited_constants_are_marked_only_where_inherited(report: Report) -> None:
    lines = render(report, "text", Style(verbosity=1)).splitlines()
    marked = [line for line in lines if ", inherited constants" in line]
    assert marked
    assert all("v100-sxm2-16gb" in line for line in marked)


def test_the_gpu_where_the_fix_gains_most_is_told(report: Report) -> None:
    effects = {"t4": gpu_effect(100.0, 2000.0), "v100": gpu_effect(300.0, 2000.0, calibrated=False)}
    odd = replace(STEM, effect=Effect(per_gpu=effects))
    text = render(replace(report, findings=(odd,)), "text")
    assert (
        "  costs 600 us, fix gains 300 us, 15 % of the step (+-8 %), on v100, inherited constants\n"
        in render(replace(report, findings=(odd,)), "text", Style(width=100))
    )
    assert " t4" not in text
    verbose = render(replace(report, findings=(odd,)), "text", Style(verbosity=1))
    assert re.search(r"^  t4 +200 us +100 us +5.0 % +\+-8 %$", verbose, re.MULTILINE)


@pytest.mark.parametrize(
    ("elsewhere_us", "said"),
    [
        ({"relu": 20.0}, "fix gains 300 us, 15 %"),
        (
            {"cross_entropy_loss": 70.0, "softplus": -30.0},
            "gains 300 us (70.0 us of it in cross_entropy_loss), ",
        ),
        (
            {"linear": 90.0, "relu": 40.0, "add": 1.0},
            "300 us (131 us of it in linear, relu and 1 more), 15 %",
        ),
    ],
)
def test_what_is_gained_in_other_operators_is_said_where_it_is_much(
    report: Report, elsewhere_us: dict[str, float], said: str
) -> None:
    effect = replace(gpu_effect(300.0, 2000.0), elsewhere_us=elsewhere_us)
    odd = replace(STEM, effect=Effect(per_gpu={"v100": effect}))
    assert said in render(replace(report, findings=(odd,)), "text", Style(width=110))


@pytest.mark.parametrize(
    ("felt_us", "said"),
    [
        (None, "on v100\n"),
        (295.0, "on v100\n"),
        (0.0, "on v100, not felt: launches take longer than the kernels\n"),
        (-10.0, "on v100, not felt: launches take longer than the kernels\n"),
        (100.0, "on v100, 100 us felt: launches take longer than the kernels\n"),
        (4000.0, "on v100, 4.00 ms felt: launches take longer than the kernels\n"),
    ],
)
def test_what_is_felt_is_said_where_launching_makes_it_another_time(
    report: Report, felt_us: float | None, said: str
) -> None:
    effect = replace(gpu_effect(300.0, 2000.0), felt_us=felt_us)
    odd = replace(STEM, effect=Effect(per_gpu={"v100": effect}))
    assert said in render(replace(report, findings=(odd,)), "text", Style(width=150))


def many_models(report: Report) -> Report:
    """Four models; the second has the findings on models."""
    entries = tuple(replace(ENTRY, target=f"m.py:net{number}") for number in range(4))
    mine = tuple(replace(finding, target="m.py:net1") for finding in (VOCABULARY, STEM))
    return replace(report, entries=entries, findings=(BACKWARD, *mine))


def test_many_models_are_a_table(report: Report) -> None:
    text = render(many_models(report), "text")
    check_golden("report_many_models.txt", text)
    assert "AMP006" in text
    assert "DIM003" not in text
    three = replace(many_models(report), entries=many_models(report).entries[:3])
    assert "DIM003" in render(three, "text")


@pytest.mark.parametrize("verbosity", [-1, 1])
def test_asked_for_details_many_models_have_them(report: Report, verbosity: int) -> None:
    text = render(many_models(report), "text", Style(verbosity=verbosity))
    assert "DIM003" in text
    assert "best gain" not in text


def test_errors_on_one_of_many_models_are_told_in_full(report: Report) -> None:
    failing = replace(VOCABULARY, level="error", target="m.py:net1")
    assert "DIM003" in render(replace(many_models(report), findings=(failing,)), "text")


def test_concise_is_a_line_a_finding(report: Report) -> None:
    fixed = Fix("Move it.", "safe", (Edit("train.py", (3, 1), (3, 5), ""),))
    findings = (replace(report.findings[0], fix=fixed), *report.findings[1:])
    assert render(replace(report, findings=findings), "concise").splitlines() == [
        "train.py:3:5: error AMP006 [*] backward() runs inside autocast.",
        "model.py:7:24: warning DIM003 The vocabulary of 50257 is not a multiple of 8, so fp16 loads of "
        "lm_head are narrow. (lm_head, model.py:LanguageModel) [10 % on a100-sxm4-80gb]",
        "model.py:8:1: info DIM002 30 output channels are not a multiple of 8. "
        "(stem, model.py:LanguageModel) [1.2 % on a100-sxm4-80gb]",
        "3 findings (1 error, 1 warning, 1 info) in 1 model and 14 files; 1 fixable with --fix; "
        "1 more below --min-gain 1 %; 2 suppressed; 1 file skipped; 1 target failed.",
    ]
    assert render(Report(Settings(), source_files=2), "concise") == "No findings in 2 files.\n"
    assert render(Report(Settings(), source_files=2), "concise", Style(verbosity=-1)) == ""


def test_long_lists_are_cut_and_counted(report: Report) -> None:
    many = tuple(Assumption(f"guess {number}", None) for number in range(9))
    entries = (replace(ENTRY, assumptions=many),)
    short = render(replace(report, entries=entries), "text")
    assert "guess 4" in short
    assert "guess 5" not in short
    assert "4 assumptions more (-v lists all)" in short
    assert "guess 8" in render(replace(report, entries=entries), "text", Style(verbosity=1))


def test_a_file_that_is_gone_costs_only_its_excerpt(report: Report) -> None:
    Path("model.py").unlink()
    text = render(report, "text")
    assert "model.py:7:24" in text
    assert "nn.Linear" not in text


def test_numbers_that_could_not_be_computed_read_unknown(report: Report) -> None:
    nan = float("nan")
    odd = replace(STEM, effect=Effect(per_gpu={"t4": gpu_effect(1.0, 2.0, gain_us=nan, gain_percent=nan)}))
    text = render(replace(report, findings=(odd,)), "text")
    assert "unknown" in text
    assert "nan" not in text


def test_only_unsafe_edits_are_called_unsafe(report: Report) -> None:
    assert "fix (unsafe): Move" in render(report, "text")
    advice = replace(BACKWARD, fix=Fix("Move it.", "advice"))
    assert "fix: Move it." in render(replace(report, findings=(advice,)), "text")


hostile = st.text(
    alphabet=st.one_of(
        st.sampled_from("\x1b[31m\n\r\t\x00\x07\x9b\u202e\u2028\udc80 ab:漢"), st.characters()
    ),
    max_size=40,
)


@settings(deadline=None)
@given(text=hostile, colour=st.booleans())
def test_hostile_text_never_reaches_the_terminal(text: str, colour: bool) -> None:
    finding = replace(
        VOCABULARY,
        message=text,
        location=Location(text, 7, module_path=text),
        fix=Fix(text),
        effect=Effect(per_gpu={text: gpu_effect(1.0, 2.0)}),
        target=text,
    )
    report = Report(
        settings=Settings(),
        entries=(replace(ENTRY, target=text, model=text, inputs=((text, text, (1,)),)),),
        findings=(finding,),
        below_min_gain=(replace(BELOW, message=text),),
        errors=(EntryError(text, text, captured_output=text),),
    )
    printed = render(report, "text", Style(verbosity=1, statistics=True, colour=colour, links=colour))
    printed = re.sub(r"\x1b\]8;;(file://[-\w.~%/]*#7)?\x1b\\", "", printed)
    # click's own sequences are ESC [ digits m; nothing else may steer the terminal.
    for sequence in ("\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[36m"):
        printed = printed.replace(sequence, "") if colour else printed
    assert all(line.isprintable() for line in printed.split("\n"))


def test_links_and_width_follow_the_style(report: Report) -> None:
    linked = render(report, "text", Style(links=True))
    location = report.findings[0].location
    address = f"file://{quote(socket.gethostname())}{quote(os.path.abspath(location.path))}#{location.line}"
    shown = f"{location.path}:{location.line}:{location.column}"
    assert f"\x1b]8;;{address}\x1b\\{shown}\x1b]8;;\x1b\\: " in linked
    narrow = render(report, "text", Style(width=50)).splitlines()
    prose = [line for line in narrow if line.startswith(("Times are", "one step", "  fix:", "    rather"))]
    assert prose
    assert max(map(len, prose)) <= 50


def test_colour_is_off_unless_asked_for(report: Report) -> None:
    assert "\x1b" not in render(report, "text")
