"""The HTML report as a document: nothing of others becomes markup, and nothing is fetched."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import HOSTILE, hostile_report, hostile_text, many_findings
from html_support import Page, traced_entry
from hypothesis import HealthCheck, example, given, settings
from sample_report import BACKWARD, ENTRY

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.what_if.comparisons import ComparedStep, Comparison
from tclint.config.settings import Settings
from tclint.core.finding import Edit, Fix
from tclint.core.text import printable
from tclint.cost.rows import Memory
from tclint.engine.report import Report
from tclint.report.html import page as html_format
from tclint.report.html import summary as html_summary
from tclint.report.html.markup import signs
from tclint.report.html.page import SIZE_LIMIT_BYTES, island
from tclint.report.render import render

OWN_ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "article",
    "noscript", "h1", "h2", "h3", "p", "ul", "li", "dl", "dt", "dd", "div", "span", "b", "small", "meter",
    "code", "details", "summary", "pre", "script", "table", "thead", "tbody", "tr", "th", "td", "h4", "svg",
    "rect", "a",
}  # fmt: skip
OWN_ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "id", "hidden", "type", "min", "max",
    "value", "scope", "tabindex", "viewbox", "preserveaspectratio", "aria-hidden", "x", "width", "height",
    "data-size", "role", "aria-label", "href", "title",
}  # fmt: skip


def check_document(document: str) -> Page:
    page = Page(document)
    assert page.open == []
    assert page.comments == []
    assert {tag for tag, _ in page.elements} <= OWN_ELEMENTS
    assert {name for _, attributes in page.elements for name in attributes} <= OWN_ATTRIBUTES
    assert [attributes.get("type") for tag, attributes in page.elements if tag == "script"] == [
        "application/json", None, None, None,
    ]  # fmt: skip
    return page


def test_tables_of_other_circumstances(report: Report) -> None:
    steps = (
        ComparedStep("fp16 <b>", 1500.0, 1.0, 512.0, 61.0, 80.0, 8.0, 2**30, True, True, present=True),
        ComparedStep(
            "fp32", 6000.0, 0.25, 128.0, 0.0, 0.0, 8.0, 2**31, False, False, note="runs on <CUDA> cores"
        ),
    )
    tables = (
        Comparison("precision", "a100-sxm4-80gb", steps),
        Comparison("batch", None, unavailable="no batch"),
    )
    entry = replace(report.entries[0], comparisons=tables)
    page = check_document(render(replace(report, entries=(entry,)), "html"))
    for said in (
        "The step in every precision (a100-sxm4-80gb)", "fp16 <b>", "1.50 ms", "0.25x", "2.00 GiB !",
        "more than the GPU has", "* inherited constants", "runs on <CUDA> cores", "none: no batch",
    ):  # fmt: skip
        assert said in page.text


def all_texts(page: Page) -> str:
    return "\n".join(page.data["texts"])


def test_what_the_page_says(report: Report) -> None:
    page = check_document(render(report, "html"))
    for said in (
        "3 findings (1 error, 1 warning, 1 info)", "1 target failed", "model.py:LanguageModel", "42.1 ms",
        "61 %", "5.1\N{MULTIPLICATION SIGN}", "a100-sxm4-80gb", "v100-sxm2-16gb", "no such size",
        "2 \N{MULTIPLICATION SIGN} fft_rfft (no formula; FLOPs unknown)", "generated.py: larger than 1 MiB",
        "batch 8, since the target gives no input",
    ):  # fmt: skip
        assert said in page.text
    texts = page.data["texts"]
    first, second, _ = page.data["findings"]
    assert texts[first["code"]] == "AMP006"
    assert "unknown" not in first, "an error is no matter of speed"
    assert [texts[row[0]] for row in second["effect"]] == ["a100-sxm4-80gb", "v100-sxm2-16gb"]
    assert texts[second["effect"][0][3]] == "42.1 ms \N{RIGHTWARDS ARROW} 37.9 ms"


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("50257 -> 50304 (+-8 %), 2.87x, 12 x relu", "50257 → 50304 (±8 %), 2.87×, 12 × relu"),
        ("products of 256 x 500 x 512 and 8x1024x768", "products of 256 × 500 × 512 and 8×1024×768"),
        ("conv2x of `f(a) -> 2x` at x1", "conv2x of `f(a) -> 2x` at x1"),
    ],
)
def test_signs_of_sentences(sentence: str, shown: str) -> None:
    assert signs(sentence) == shown


def test_source_lines_with_the_place_marked(report: Report) -> None:
    data = check_document(render(report, "html")).data
    lines = {row[0]: [data["texts"][part] for part in row[1:]] for row in data["findings"][1]["source"]}
    assert lines[7] == ["        self.lm_head = ", "nn.Linear(768, 50257, bias=False)", ""]
    assert lines[5] == ["    def __init__(self):"]


@pytest.mark.parametrize(
    ("edits", "removed", "added"),
    [
        ((Edit("train.py", (3, 1), (3, 5), ""),), ["    loss.backward()"], ["loss.backward()"]),
        ((Edit("train.py", (3, 1), (4, 1), ""),), ["    loss.backward()"], []),
        ((Edit("train.py", (1, 1), (1, 1), "import x\n"),), [], ["import x"]),
        (
            (Edit("train.py", (1, 21), (1, 27), '"cpu"'), Edit("train.py", (1, 1), (1, 5), "async with")),
            ['with torch.autocast("cuda"):'],
            ['async with torch.autocast("cpu"):'],
        ),
    ],
)
def test_a_fix_before_and_after(
    report: Report, edits: tuple[Edit, ...], removed: list[str], added: list[str]
) -> None:
    finding = replace(BACKWARD, fix=Fix("Do it.", "safe", edits))
    data = check_document(render(replace(report, findings=(finding,)), "html")).data
    ((place, before, after),) = data["findings"][0]["changes"]
    assert data["texts"][place] == f"train.py:{min(edit.start[0] for edit in edits)}"
    assert [data["texts"][line] for line in before] == removed
    assert [data["texts"][line] for line in after] == added


def test_profiles_are_the_estimates_of_the_graph(report: Report) -> None:
    entry = traced_entry()
    report = replace(report, entries=(entry,))
    data = check_document(render(report, "html")).data
    (shown,) = data["entries"]
    by_name = {(one["gpu"], one["precision"]): one for one in shown["profiles"]}
    assert ("a100-sxm4-80gb", "bf16") in by_name
    assert ("v100-sxm2-16gb", "bf16") not in by_name  # its Tensor Cores have no bf16
    assert [one["precision"] for one in shown["profiles"] if one["is_run"]] == ["fp16", "fp16"]
    assert entry.graph is not None
    context = GraphContext(entry.graph, report.settings)
    for scenario in context.scenarios:
        estimate = context.estimate(scenario)
        profile = by_name[estimate.gpu.id, "fp16"]
        step_us = pytest.approx(estimate.step_time_us, rel=1e-3)
        assert profile["step_time_us"] == step_us
        assert sum(op[3] for op in profile["ops"]) == step_us
        assert sum(time_us for _, time_us in profile["modules"]) == step_us
        assert sum(op[4] for op in profile["ops"]) == estimate.flops
        tiled = [row for row in estimate.rows if row.tile is not None]
        assert sum(row[5] for row in profile["kernels"]) == len(tiled) > 0
        assert sum(row[6] for row in profile["kernels"]) == pytest.approx(
            sum(row.time_us for row in tiled), rel=1e-3
        )


def test_the_policy_allows_the_page_s_own_script_and_nothing_else(report: Report) -> None:
    document = render(report, "html")
    page = check_document(document)
    (policy,) = [
        attributes["content"]
        for _, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    executed = [content for attributes, content in page.raw if attributes.get("id") != "data"]
    hashes = {
        f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" for content in executed
    }
    allowed = {*directives["script-src"].split(), *directives["style-src"].split()}
    assert hashes == allowed
    assert "sourceMappingURL" not in document
    assert not re.search(r"url\(|@import", executed[0])


@given(path=hostile_text, layer=hostile_text, message=hostile_text)
@example(path="x", layer="y", message="+-")
@example(path=HOSTILE[2], layer=HOSTILE[2], message="</script><!--<script>]]>'\"&lt;")
@example(path="'", layer="' onclick='alert(1)", message='" onclick="alert(1)')
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_of_others_stays_text(
    path: str, layer: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = hostile_report(path, layer, message, message)
    entry = replace(
        report.entries[0], graph=traced_entry(4, layer=layer, path=path.replace("\0", "") or "x").graph
    )
    document = render(replace(report, entries=(entry,)), "html")
    page = check_document(document)
    document.encode("utf-8")
    assert all(character.isprintable() or character == "\n" for character in page.text)
    assert all(character.isprintable() for shown in page.data["texts"] for character in shown)
    assert signs(printable(message)) in page.data["texts"]
    assert printable(layer) in page.data["texts"]
    assert signs(printable(message)) in page.text


@given(text=hostile_text)
def test_an_island_ends_no_element(text: str) -> None:
    written = island({"x": [text]})
    assert not set("<>&") & set(written)
    assert written.isascii()
    page = Page(f"<script type='application/json' id='data'>{written}</script><p>after</p>")
    assert page.data == {"x": [text]}
    assert page.text == "after"


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """5,000 findings and 5,000 ops."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for number in range(50):
        (tmp_path / "src" / f"file{number}.py").write_text("x = torch.nn.Linear(10, 10)  # a line\n" * 200)
    return replace(many_findings(5_000), entries=(traced_entry(5_000),))


def test_large_reports_fit(large: Report) -> None:
    document = render(large, "html")
    assert len(document.encode("utf-8")) < SIZE_LIMIT_BYTES
    data = check_document(document).data
    assert len(data["findings"]) == 5_000
    assert all(finding["source"] for finding in data["findings"])
    (entry,) = data["entries"]
    assert all(len(profile["ops"]) >= 2_500 for profile in entry["profiles"])


def test_what_does_not_fit_is_counted(large: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [
        replace(detail, rows=detail.rows // 20, findings=detail.findings // 5)
        for detail in html_format._DETAILS
    ]
    monkeypatch.setattr(html_format, "_DETAILS", few)
    large = replace(large, findings=large.findings[:400], entries=(traced_entry(200),))
    full = len(render(large, "html"))
    least = len(render(replace(large, findings=(), entries=()), "html"))
    left_out = []
    for limit in (full - 1, least + (full - least) // 3, least + (full - least) // 5):
        monkeypatch.setattr(html_format, "SIZE_LIMIT_BYTES", limit)
        document = render(large, "html")
        assert len(document) < min(limit, full)
        data = check_document(document).data
        assert len(data["findings"]) + data["findings_left_out"] == 400
        profiles = [profile for entry in data["entries"] for profile in entry["profiles"]]
        for profile in profiles:
            assert len(profile["ops"]) + profile["ops_left_out"] == 201  # and the optimizer
            total_us = sum(time_us for _, time_us in profile["modules"])
            assert total_us == pytest.approx(profile["step_time_us"], rel=1e-2)
        left_out.append((data["findings_left_out"], sum(profile["ops_left_out"] for profile in profiles)))
        assert len(data["models"]) == 1
    assert all(map(any, zip(*left_out, strict=True)))


def test_an_empty_report() -> None:
    page = check_document(render(Report(settings=hostile_report("x", "x", "x").settings), "html"))
    assert "no findings" in page.text
    assert "Everything was analysed" in page.text


@pytest.mark.parametrize(("models", "closed"), [(1, 0), (2, 0), (5, 5)])
def test_several_models_begin_with_a_table(models: int, closed: int) -> None:
    entries = tuple(replace(ENTRY, target=f"model.py:build_{number}") for number in range(models))
    page = Page(render(Report(Settings(), entries=entries), "html"))
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    places = {attributes.get("id") for _, attributes in page.elements}
    gpus = len(ENTRY.metrics)
    if models == 1:
        assert links == []
    else:
        to_models = [link for link in links if link != "#overview"]
        assert to_models == [f"#model-{number}" for number in range(1, models + 1) for _ in range(gpus)]
        assert links.count("#overview") == models
        assert {link[1:] for link in links if link} <= places
        table = page.source.split("id='overview'")[1].split("</section>")[0]
        assert table.count("<tr>") == 1 + models * gpus
    sections = page.source.split("<section class='model'>")[1:]
    assert sum("<details><summary><h2" in section for section in sections) == closed


def test_models_without_room_for_a_section_are_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = tuple(replace(ENTRY, target=f"model.py:build_{number}") for number in range(9))
    monkeypatch.setattr(html_summary, "SECTIONS_BYTES", 10_000)
    page = check_document(render(Report(Settings(), entries=entries), "html"))
    sections = page.source.count("<section class='model'>")
    assert 0 < sections < 9
    assert f"{9 - sections} further models in the table alone" in page.text
    rows = page.source.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]
    assert len(rows) == 9 * len(ENTRY.metrics)
    assert sum("<a " in row for row in rows) == sections * len(ENTRY.metrics)


def test_pictures_have_their_numbers_in_words(report: Report) -> None:
    gpu = "a100-sxm4-80gb"
    metrics = replace(
        ENTRY.metrics[gpu], memory=Memory(2**28, activations_bytes=3 * 2**28), step_time_fixed_us=21_050.0
    )
    entry = replace(ENTRY, metrics={gpu: metrics})
    page = check_document(render(replace(report, entries=(entry,)), "html"))
    for said in ("Phases of the step", "fix by fix", "with the fixes made", "21.1 ms", "Memory, 1.00 GiB"):
        assert said in page.text
    widths = [
        [float(attributes["width"] or 0) for tag, attributes in part if tag == "rect"]
        for part in _pictures(page.elements)
    ]
    assert widths[0] == pytest.approx([33.33, 50.0, 16.67], abs=0.01)
    assert [100.0] in widths  # as it is
    assert [50.0] in widths  # with the fixes made
    assert widths[-1] == [25.0, 75.0]


def _pictures(
    elements: list[tuple[str, dict[str, str | None]]],
) -> list[list[tuple[str, dict[str, str | None]]]]:
    """The elements behind each bar, up to the next picture."""
    starts = [
        at for at, (tag, found) in enumerate(elements) if tag == "svg" and found.get("class") == "parts"
    ]
    found = []
    for start in starts:
        behind = elements[start + 1 :]
        end = next((at for at, (tag, _) in enumerate(behind) if tag != "rect"), len(behind))
        found.append(behind[:end])
    return found
