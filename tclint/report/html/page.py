"""The HTML report: one file with everything in it, which a browser needs no network for.

Text of others gets into the page in two ways only: through `markup.text`, which escapes it, and as
JSON in a block that is no script, which `island` writes so that nothing in it can end the block. The page's
own script shows it as text nodes. A content security policy names the hashes of that script and style, so
a browser would run nothing else, and would connect to nothing.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from tclint.core.units import plural
from tclint.engine.provenance import tool
from tclint.engine.report import Report
from tclint.report.excerpt import SourceLines
from tclint.report.html import summary as html_summary
from tclint.report.html.findings import findings_json
from tclint.report.html.markup import text
from tclint.report.html.profile import LIMITERS, Profile, Texts, profiles
from tclint.report.words import model_count

SIZE_LIMIT_BYTES = 5_000_000
"""The limit for the whole page: what mail and code hosts still show."""

FINDINGS_BYTES = 1_250_000
"""Kept for them where thousands of models have rows in the table."""

ENTRIES_AT_MOST = 100
"""Models with charts: each is priced on every GPU and in every precision for them."""


@dataclass(frozen=True, slots=True)
class _Detail:
    rows: int
    """Ops in all profiles together, and kernels."""
    findings: int
    source: bool
    """Whether findings come with source lines."""


_DETAILS = (
    _Detail(24_000, 20_000, True),
    _Detail(8_000, 10_000, True),
    _Detail(2_000, 5_000, False),
    _Detail(400, 1_000, False),
    _Detail(0, 100, False),
)
"""The first that fits is taken, else the last."""


def render(report: Report) -> str:
    """The report as one HTML document of at most SIZE_LIMIT_BYTES; what did not fit is counted in it."""
    before, after = _page(report)
    room = SIZE_LIMIT_BYTES - len(before.encode("utf-8")) - len(after.encode("utf-8"))
    steps = [
        (number, list(profiles(entry, entry.settings or report.settings)))
        for number, entry in enumerate(report.entries[:ENTRIES_AT_MOST])
        if entry.graph is not None
    ]
    data = ""
    for detail in _DETAILS:
        data = island(_data(report, steps, detail))
        if len(data) <= room:
            break
    return before + data + after


def island(value: Any) -> str:
    """JSON of ASCII characters without `<`, `>` and `&`: it can end no element and start no comment."""
    document = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return document.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(report: Report, steps: Sequence[tuple[int, list[Profile]]], detail: _Detail) -> dict[str, Any]:
    texts = Texts()
    each = max(detail.rows // max(sum(len(drawn) for _, drawn in steps), 1), 10)
    drawn = steps if detail.rows else []
    listed = report.findings[: detail.findings]
    return {
        "limiters": list(LIMITERS),
        "models": [texts.of(entry.target) for entry in report.entries],
        "entries": [
            {"model": number, "profiles": [one.to_json(texts, each) for one in drawn_here]}
            for number, drawn_here in drawn
        ],
        "is_saved": bool(report.made_with),
        "findings": findings_json(
            listed,
            {entry.target: entry for entry in report.entries},
            texts,
            SourceLines.of(report),
            with_source=detail.source,
        ),
        "findings_left_out": len(report.findings) - len(listed),
        "texts": texts.listed,
    }


def _page(report: Report) -> tuple[str, str]:
    """The document before and after the JSON block."""
    table = html_summary.overview(report, 0)
    sections = html_summary.models(report, SIZE_LIMIT_BYTES - FINDINGS_BYTES - len(table))
    left_out = len(report.entries) - len(sections)
    few = f"<p>{plural(left_out, 'further model')} in the table alone.</p>" if left_out else ""
    targets = [entry.target for entry in report.entries]
    title = (
        targets[0] if len(targets) == 1 else plural(model_count(report), "model") if targets else "sources"
    )
    body = f"""<header><h1>tclint</h1>{html_summary.heading(report)}</header>
<main>
{html_summary.overview(report, len(sections))}
{"".join(sections)}{few}
<noscript><p>The findings, charts and tables below need JavaScript; \
the text report (<code>--format text</code>) has the findings without it.</p></noscript>
<section id="findings" hidden></section>
<section id="analysis" hidden></section>
<section id="left-out"><h2>What was not analysed</h2>{html_summary.left_out(report)}</section>
</main>
<footer><p>tclint {text(tool(report)["version"])}. Times are predictions for GPU kernels, not measurements; \
\N{PLUS-MINUS SIGN} is the mean error that predictions of such kernels had on shapes not fitted to.</p>
"""
    return document(title, body, ("report.js", "models.js"))


def document(title: str, body: str, scripts: Sequence[str]) -> tuple[str, str]:
    """A page before and after its JSON block.

    Args:
        body: markup that begins with a header and ends inside of a footer.
        scripts: of the assets; they run in this order, after the charts' library.
    """
    style, chart = _asset("report.css"), _asset("chart.umd.min.js")
    # Browsers' tools would look for the map beside the page.
    run = [chart.partition("\n//# sourceMappingURL=")[0], *map(_asset, scripts)]
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src {' '.join(repr(_hash(script)) for script in run)}; base-uri 'none'; form-action 'none'"
    )
    before = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>tclint: {text(title)}</title>
<style>{style}</style>
</head>
<body>
{body}<details><summary>Licence of the charts' library</summary>\
<pre>{escape(_asset("chart.LICENSE.md"))}</pre></details>
</footer>
<script type="application/json" id="data">"""
    ran = "\n".join(f"<script>{script}</script>" for script in run)
    return before, f"</script>\n{ran}\n</body>\n</html>\n"


@cache
def _asset(name: str) -> str:
    return resources.files("tclint.report.html.assets").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
