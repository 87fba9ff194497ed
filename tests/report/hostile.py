"""Names and messages that try to break out of a format, and strategies that make more of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from sample_report import ENTRY, STEM, VOCABULARY

from tclint.config.settings import Settings
from tclint.core.finding import Effect, Finding, Fix, Location, Related
from tclint.engine.report import EntryError, Report
from tclint.graph.lowering.work import Gap
from tclint.graph.ops import Assumption, Site
from tclint.source.syntax.discovery import Skipped

HOSTILE = (
    "::error::owned",
    "a\n::error file=x::owned\r\n##[error]owned",
    "</code><script>alert(1)</script><img src=x onerror=alert(1)>",
    "|a|b|\n|---|---|\n| x | y |",
    "`code` **bold** [link](http://evil.example) ![image](http://evil.example/x.png) @everyone #1",
    "\x1b[31mred\x1b[0m\x07\x00",
    'quote " backslash \\ and \\n, comma, colon: percent %0A %25',
    "caf\udce9 \ud800 \u202e right-to-left \u2028 line separator",
    "=cmd|' /C calc'!A0",
    "</details>\n\n# Heading\n\n```\nfence",
    "\\",
    "",
)

hostile_text = st.sampled_from(HOSTILE) | st.text(st.characters(categories=None), max_size=30) | st.text(
    "|`*_<>[]()#!\\\n\r\"'%:,@~$&;=-+. ab1{}", max_size=30
)  # fmt: skip


def hostile_report(path: str, layer: str, message: str, other: str = "x") -> Report:
    """Every place that can hold text of others holds it."""
    path = path.replace("\0", "") or "x"
    finding = replace(
        VOCABULARY,
        message=message,
        location=Location(path, 3, 2, 3, 9, module_path=layer),
        related=(Related(Location(path, 1), other),),
        fix=Fix(other),
        target=path,
        evidence={layer: message},
    )
    outside = replace(
        STEM, location=Location("../" + path, 2), effect=Effect(unknown=message or "unknown"), target=None
    )
    entry = replace(
        ENTRY,
        target=path,
        model=layer,
        assumptions=(Assumption(message, Site(path, 1)),),
        not_analysed=(Gap(layer, message, (1,)),),
        inputs=((layer, "int64", (1,)),),
    )
    return Report(
        settings=Settings(gpus=("a100-sxm4-80gb", "v100-sxm2-16gb")),
        entries=(entry,),
        findings=(finding, outside),
        skipped=(Skipped(path, message),),
        errors=(EntryError(other, message),),
    )


def many_findings(count: int) -> Report:
    """A report of that many different findings in 50 files that exist where it runs."""
    levels = ("error", "warning", "info")
    findings: tuple[Finding, ...] = tuple(
        replace(
            VOCABULARY,
            level=levels[number % 3],
            message=f"Finding {number}: {VOCABULARY.message}",
            location=Location(f"src/file{number % 50}.py", 1 + number // 50, 1, None, None, f"layer{number}"),
        )
        for number in range(count)
    )
    return Report(settings=Settings(gpus=("a100-sxm4-80gb",)), entries=(ENTRY,), findings=findings)
