"""The HTML report: one file with everything in it, which a browser needs no network for.

Text of others gets into the page in two ways only: through `html_summary.text`, which escapes it, and as
JSON in a block that is no script, which `island` writes so that nothing in it can end the block. The page's
own script shows it as text nodes. A content security policy names the hashes of that script and style, so
a browser would run nothing else, and would connect to nothing.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from tclint import __version__
from tclint.report import html_summary
from tclint.report.html_findings import findings_json
from tclint.report.html_profile import LIMITERS, Limits, Texts, profiles
from tclint.report.html_summary import text
from tclint.report.units import plural

if TYPE_CHECKING:
    from tclint.pipeline import Report

SIZE_LIMIT_BYTES = 5_000_000
"""Of the whole page: what mail and code hosts still show."""

FINDINGS_AT_MOST = 20_000
_LEVELS_OF_DETAIL = ((24_000, 1.0, True), (8_000, 0.5, True), (2_000, 0.5, False), (400, 0.1, False))
"""Ops drawn in all profiles together, share of FINDINGS_AT_MOST, and whether source lines are shown: the
first level that fits is taken."""


def render(report: Report) -> str:
    """The report as one HTML document of at most SIZE_LIMIT_BYTES; what did not fit is counted in it."""
    before, after = _page(report)
    room = SIZE_LIMIT_BYTES - len(before.encode("utf-8")) - len(after.encode("utf-8"))
    data = ""
    for rows, share, with_source in _LEVELS_OF_DETAIL:
        data = island(_data(report, rows, int(share * FINDINGS_AT_MOST), with_source=with_source))
        if len(data) <= room:
            return before + data + after
    return before + island(_data(report, 0, 100, with_source=False)) + after


def island(value: Any) -> str:
    """JSON of ASCII characters without `<`, `>` and `&`: it can end no element and start no comment."""
    document = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return document.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(report: Report, rows: int, findings_at_most: int, *, with_source: bool) -> dict[str, Any]:
    texts = Texts()
    traced = [entry for entry in report.entries if entry.graph is not None]
    # Four precisions at most on every GPU, for every model.
    each = max(rows // max(4 * len(report.settings.gpus) * len(traced), 1), 10)
    limits = Limits(ops=each, kernels=each, modules=max(each, 50))
    entries = traced if rows else []
    listed = report.findings[:findings_at_most]
    return {
        "limiters": list(LIMITERS),
        "entries": [
            {"target": texts.of(entry.target), "profiles": profiles(entry, report.settings, texts, limits)}
            for entry in entries
        ],
        "profiles_left_out": len(traced) - len(entries),
        "findings": findings_json(
            listed, {entry.target: entry for entry in report.entries}, texts, with_source=with_source
        ),
        "findings_left_out": len(report.findings) - len(listed),
        "texts": texts.listed,
    }


def _page(report: Report) -> tuple[str, str]:
    """The document before and after the JSON block."""
    style, script, chart = _asset("report.css"), _asset("report.js"), _asset("chart.umd.min.js")
    # Browsers' tools would look for the map beside the page.
    chart = chart.partition("\n//# sourceMappingURL=")[0]
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(chart)}' '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    licence = escape(_asset("chart.LICENSE.md"))
    targets = [entry.target for entry in report.entries]
    title = targets[0] if len(targets) == 1 else plural(len(targets), "model") if targets else "sources"
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
<header><h1>tclint</h1>{html_summary.heading(report)}</header>
<main>
{html_summary.models(report)}
<noscript><p>The findings, charts and tables below need JavaScript; \
the text report (<code>--format text</code>) has the findings without it.</p></noscript>
<section id="findings" hidden></section>
<section id="analysis" hidden></section>
<section id="left-out"><h2>What was not analysed</h2>{html_summary.left_out(report)}</section>
</main>
<footer><p>tclint {text(__version__)}. Times are predictions for GPU kernels, not measurements; \
+- is the mean error that predictions of such kernels had on shapes not fitted to.</p>
<details><summary>Licence of the charts' library</summary><pre>{licence}</pre></details>
</footer>
<script type="application/json" id="data">"""
    after = f"</script>\n<script>{chart}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    return before, after


@cache
def _asset(name: str) -> str:
    return resources.files("tclint.report.assets").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
