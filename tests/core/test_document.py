"""One document in text, Markdown and HTML."""

from __future__ import annotations

from tclint.core.document import Figure, Heading, Lines, Table, as_markdown, as_page, as_text

ROWS = [("product", "600 us"), ("  float32", "300 us")]
DOCUMENT = [
    Heading("trace.json: A100", 1),
    Lines(["kernels 900 us"]),
    Heading("by kind"),
    Table(("kind", "time", "Tensor Cores"), ROWS, ["", "without TF32"]),
    Lines([], "- "),
    Figure("roofline", lambda: "<svg></svg>"),
    Lines(["no modules were recorded"], "note: "),
]


def test_text_has_details_beneath_their_rows_and_no_figures() -> None:
    assert as_text(DOCUMENT, 80) == (
        "trace.json: A100\n"
        "kernels 900 us\n"
        "\n"
        "by kind\n"
        "  kind         time\n"
        "  product    600 us\n"
        "    float32  300 us\n"
        "      without TF32\n"
        "\n"
        "note: no modules were recorded\n"
    )


def test_names_that_are_too_long_for_a_line_stand_last() -> None:
    table = Table(("operator", "time"), [("aten::add " * 6, "300 us")])
    assert as_text([table], 40).splitlines() == [
        "    time  operator",
        "  300 us  aten::add aten::add aten::add",
        "          aten::add aten::add aten::add",
    ]


def test_markdown_has_details_as_a_column() -> None:
    assert as_markdown(DOCUMENT) == (
        "## trace.json: A100\n\n- kernels 900 us\n\n### By kind\n\n"
        "| Kind | Time | Tensor Cores |\n| --- | ---: | --- |\n| product | 600 us |  |\n"
        "| &nbsp;&nbsp;float32 | 300 us | without TF32 |\n\n- no modules were recorded\n"
    )


def test_a_page_names_rows_by_their_first_cells_and_has_figures() -> None:
    page = as_page(DOCUMENT, "profile")
    assert (
        '<th scope="row" class="part">float32</th><td class="number">300 us</td><td>without TF32</td>' in page
    )
    assert "<h2>Roofline</h2>\n<svg></svg>" in page
    assert "<ul></ul>" not in page


def test_text_of_others_is_shown_literally() -> None:
    hostile = "<script>|`\x1b[31m"
    document = [Heading(hostile), Lines([hostile], "- "), Table((hostile,), [(hostile,)])]
    assert "\x1b" not in as_text(document, 80)
    assert "<script" not in as_page(document, hostile)
    assert "<script" not in as_markdown(document)
    assert as_markdown(document).count("|") == 6
