"""Markdown read by a CommonMark parser with GitHub's tables: text of others stays text."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import HOSTILE, hostile_report, hostile_text
from hypothesis import HealthCheck, example, given, settings

from tclint.config.settings import Settings
from tclint.core.markup import code, prose, row, table, text
from tclint.core.text import printable
from tclint.engine.report import Report
from tclint.report.formats.markdown import SUMMARY_BYTES
from tclint.report.render import render

markdown_it = pytest.importorskip("markdown_it")

PARSER = markdown_it.MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"])

OWN_HTML = {"<code>", "</code>", "<!-- -->", "<br>"}
OWN_BLOCKS = ("<details><summary>", "</details>")


def inline_text(tokens: list) -> str:  # type: ignore[type-arg]
    """The text that a reader sees of inline tokens; anything but text and our own tags is a failure."""
    shown = ""
    for token in tokens:
        if token.type == "html_inline":
            assert token.content in OWN_HTML, token.content
        else:
            assert token.type in ("text", "softbreak"), (token.type, token.content)
            shown += token.content
    return shown


def seen(value: str) -> str:
    """What a browser shows of `value`: blanks run together, zero-width joints are nothing."""
    return " ".join(value.replace("\u200b", "").split())


def parsed_cells(markdown: str) -> list[list[str]]:
    """The body cells of the only table."""
    rows: list[list[str]] = []
    inside = False
    for token in PARSER.parse(markdown):
        if token.type == "tbody_open":
            inside = True
        elif token.type == "tr_open" and inside:
            rows.append([])
        elif token.type == "inline" and inside:
            rows[-1].append(inline_text(token.children))
    return rows


@given(value=hostile_text)
@example("www.evil.example http://evil.example")
@example("1. list")
@example("---")
@example("===")
@example("+ list")
@example("+-8 %")
@example("a_b_c _d_ __e__")
def test_text_is_shown_literally_in_a_paragraph(value: str) -> None:
    for markdown, around in ((text(value), ""), (f"- {code('x')}: {text(value)}", "x: ")):
        blocks = [token for token in PARSER.parse(markdown) if token.type == "inline"]
        shown = "".join(inline_text(block.children) for block in blocks)
        assert seen(shown) == seen(around + printable(value))


@given(value=hostile_text)
def test_quoted_parts_are_code_and_literal(value: str) -> None:
    blocks = [token for token in PARSER.parse(f"- x {prose(value)}") if token.type == "inline"]
    shown = "".join(inline_text(block.children) for block in blocks)
    assert seen(shown) == seen("x " + re.sub(r"`([^`]+)`", r"\1", printable(value)))


def test_quoted_code_of_a_message() -> None:
    assert prose("call `a_b(x)` | now") == "call <code>a_b(x)</code> &#124; now"


@given(values=hostile_text.flatmap(lambda first: hostile_text.map(lambda second: (first, second))))
def test_text_stays_in_its_cell(values: tuple[str, str]) -> None:
    markdown = "\n".join(table(["a", "b"], [[text(values[0]), code(values[1])], ["last", "row"]]))
    cells = parsed_cells(markdown)
    assert [[seen(cell) for cell in line] for line in cells] == [
        [seen(printable(values[0])), seen(printable(values[1]))],
        ["last", "row"],
    ]


def test_no_mention_and_no_link() -> None:
    assert "@\u200b" in inline_text(PARSER.parse(text("@everyone"))[1].children)
    assert "www." not in text("www.evil.example")
    assert "://" not in text("https://evil.example")


def headings(markdown: str) -> list[str]:
    tokens = PARSER.parse(markdown)
    return [
        inline_text(after.children)
        for token, after in itertools.pairwise(tokens)
        if token.type == "heading_open"
    ]


def check_structure(markdown: str) -> None:
    """Nothing in a report but what the report itself builds."""
    for token in PARSER.parse(markdown):
        if token.type == "html_block":
            assert token.content.startswith(OWN_BLOCKS), token.content
        elif token.type == "inline":
            inline_text(token.children)
        else:
            assert token.type not in ("fence", "code_block", "blockquote_open", "hr"), token.type


def test_whole_report(report: Report) -> None:
    markdown = render(report, "markdown")
    check_structure(markdown)
    assert headings(markdown) == [
        "tclint: 3 findings (1 error, 1 warning, 1 info)",
        "Not linted",
        "Models",
        "Findings",
    ]
    assert "1 more would gain less than 1 % of the step; 2 findings suppressed by comments" in markdown
    for part in ("42.1 ms", "61 %", "292 GFLOP", "DIM003 vocab-misaligned", "<code>lm_head</code>", "10 %"):
        assert part in markdown


def test_what_is_not_listed_is_counted(report: Report) -> None:
    markdown = render(replace(report, baselined=report.suppressed), "markdown")
    assert (
        "2 findings suppressed by comments; 2 findings accepted by the baseline; 14 source files" in markdown
    )


def test_empty_report() -> None:
    assert render(Report(settings=Settings()), "markdown") == "## tclint: no findings\n"


@pytest.mark.parametrize("value", HOSTILE)
def test_known_attacks(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    markdown = render(hostile_report(value, value, value, value), "markdown")
    check_structure(markdown)
    assert headings(markdown)[1:] == ["Not linted", "Models", "Findings"]
    assert "<script" not in markdown
    assert "\x1b" not in markdown


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=hostile_text, layer=hostile_text, message=hostile_text)
def test_any_text(
    path: str, layer: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    markdown = render(hostile_report(path, layer, message), "markdown")
    check_structure(markdown)
    assert len(markdown.encode("utf-8")) <= SUMMARY_BYTES
    assert headings(markdown)[1:] == ["Not linted", "Models", "Findings"]


def test_row_joins_cells() -> None:
    assert row(["a", "b"]) == "| a | b |"
