"""What a rule says of itself, for formats that carry documentation: plain text and Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tclint.core.finding import Finding
from tclint.core.markup import text
from tclint.core.rule import REFERENCES, Rule
from tclint.report.catalogue import (
    Part,
    Reference,
    engine_page,
    reference_texts,
    references,
    rule_kind,
    rule_page,
    sections,
    summaries,
)
from tclint.report.render import Style

_CODE_SECTIONS = ("Example", "Use instead")


@dataclass(frozen=True, slots=True)
class RuleText:
    """One rule, or one of the engine's own findings, in words."""

    summary: str
    description: str
    """What it does, in a paragraph."""
    help_text: str
    help_markdown: str
    kinds: tuple[str, ...] = ()
    """'graph' and 'source', as far as it has these sides."""


def rule_text(finding: Finding, sides: Sequence[type[Rule]]) -> RuleText:
    """What is said of the rule of a finding.

    Args:
        sides: the classes of that rule; none for a finding of the engine, or of a rule that is gone.
    """
    if not sides:
        page = engine_page(finding.code) or f"{finding.code} {finding.name}: this tclint has no page on it.\n"
        body = " ".join(page.split("\n", 1)[-1].split()) or page.strip()
        summary = finding.name.replace("-", " ").capitalize() or finding.code
        return RuleText(summary, body, page, f"{text(body)}\n")
    summary = " ".join(sides[0].summary().split()) or finding.name
    description = " ".join(sides[0].sections().get("What it does", "").split()) or summary
    kinds = tuple(map(rule_kind, sides))
    return RuleText(summary, description, rule_page(sides, Style()), rule_markdown(sides), kinds)


def rule_markdown(sides: Sequence[type[Rule]]) -> str:
    """A rule's page in Markdown: the docstrings' sections, code in fences, and the sources with addresses.

    Args:
        sides: the class of the rule, or its two sides, which a section tells apart where they differ.
    """
    lines = []
    for part in summaries(sides):
        lines += [f"{part.side}: " * bool(part.side) + text(" ".join(part.body.split())), ""]
    for name, parts in sections(sides):
        lines += [f"## {name}", "", *_bodies(parts, code=name in _CODE_SECTIONS)]
    lines += [f"## {REFERENCES}", "", *_bodies(reference_texts(sides), code=False)]
    lines += [f"- {_reference(found)}" for found in references(sides)]
    return "\n".join(lines) + "\n"


def _bodies(parts: Iterable[Part], code: bool) -> Iterator[str]:
    for part in parts:
        if part.side is not None:
            yield from (f"### {part.side}", "")
        body = textwrap.dedent(part.body).strip("\n")
        yield from _fenced(body) if code else [body]
        yield ""


def _reference(reference: Reference) -> str:
    document = text(reference.document)
    return (f"[{document}]({reference.url})" if reference.url else document) + text(reference.rest)


def _fenced(body: str) -> list[str]:
    """Code in a fence longer than any in it; a section that brings its own fences stays."""
    if "```" in body:
        return [body]
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
    return [f"{fence}python", body, fence]
