"""What a rule says of itself, for formats that carry documentation: plain text and Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tclint.core.finding import Confidence, Finding, Level
from tclint.core.markup import text
from tclint.core.rule import REFERENCES, Rule
from tclint.engine.rule_registry import all_rules
from tclint.report.catalogue import engine_page, rule_kind, rule_page
from tclint.report.render import Style
from tclint.report.rule_parts import Part, Reference, reference_texts, references, sections, summaries

_CODE_SECTIONS = ("Example", "Use instead")


@dataclass(frozen=True, slots=True)
class RuleText:
    """One rule, or one of the engine's own findings, in words."""

    code: str
    name: str
    level: Level
    confidence: Confidence
    summary: str
    description: str
    """What it does, in a paragraph."""
    help_text: str
    help_markdown: str
    tags: tuple[str, ...]


def rule_texts(local: Sequence[str], findings: Iterable[Finding]) -> list[RuleText]:
    """Every known rule, whether it found something or not, and whatever else findings name; by code.

    Raises:
        UsageError: a rule module cannot be imported.
    """
    sides: dict[str, list[type[Rule]]] = {}
    for rule in all_rules(local):
        sides.setdefault(rule.code, []).append(rule)
    found = {code: _of_rule(*rules) for code, rules in sides.items()}
    for finding in findings:
        if finding.code not in found:
            found[finding.code] = _of_finding(finding)
    return [found[code] for code in sorted(found)]


def _of_rule(rule: type[Rule], *sides: type[Rule]) -> RuleText:
    sections = rule.sections()
    summary = " ".join(rule.summary().split()) or rule.name
    description = " ".join(sections.get("What it does", "").split()) or summary
    return RuleText(
        code=rule.code,
        name=rule.name,
        level=rule.level,
        confidence=rule.confidence,
        summary=summary,
        description=description,
        help_text=rule_page((rule, *sides), Style()),
        help_markdown=rule_markdown((rule, *sides)),
        tags=("performance", "tensor-cores", *(rule_kind(side) for side in (rule, *sides))),
    )


def _of_finding(finding: Finding) -> RuleText:
    page = engine_page(finding.code) or f"{finding.code} {finding.name}: this tclint has no page on it.\n"
    body = " ".join(page.split("\n", 1)[-1].split()) or page.strip()
    return RuleText(
        code=finding.code,
        name=finding.name,
        level=finding.level,
        confidence=finding.confidence,
        summary=finding.name.replace("-", " ").capitalize() or finding.code,
        description=body,
        help_text=page,
        help_markdown=f"{text(body)}\n",
        tags=("performance", "tclint"),
    )


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
