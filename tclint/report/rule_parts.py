"""What a rule's page says, section by section, whatever it is shown in: both sides of a rule on one page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tclint.analysis.graph_rule import GraphRule
from tclint.core.rule import DOC_SECTIONS, REFERENCES, Rule
from tclint.core.toml import packaged_toml
from tclint.engine.rules.index import PACKAGE

DOCUMENTS = "documents.toml"


@dataclass(frozen=True, slots=True)
class Part:
    """The text of a section."""

    side: str | None
    """The side that it is about; None: the rule's only one, or both."""
    body: str


@dataclass(frozen=True, slots=True)
class Reference:
    """One of a rule's sources."""

    document: str
    rest: str
    """What follows the document's name: ', section: claim'."""
    url: str | None


def side_name(rule: type[Rule]) -> str:
    """What a class looks at, as a heading of its part of a section."""
    return "In a traced model" if issubclass(rule, GraphRule) else "In training code"


def summaries(sides: Sequence[type[Rule]]) -> list[Part]:
    """The first line of the page, or one per side where they differ."""
    return _parts(sides, [side.summary() for side in sides])


def sections(sides: Sequence[type[Rule]]) -> Iterator[tuple[str, list[Part]]]:
    """The sections of a page in order, without the references; a text that both sides share stands once."""
    texts = [side.sections() for side in sides]
    for name in DOC_SECTIONS:
        parts = _parts(sides, [text.get(name, "") for text in texts])
        if parts:
            yield name, parts


def reference_texts(sides: Sequence[type[Rule]]) -> list[Part]:
    """What docstrings of others' rules say under 'References', which ours no longer have."""
    return _parts(sides, [side.sections().get(REFERENCES, "") for side in sides])


def references(sides: Sequence[type[Rule]]) -> list[Reference]:
    """The sources of all sides, each once."""
    return [
        _reference(source) for source in dict.fromkeys(source for side in sides for source in side.sources)
    ]


def _parts(sides: Sequence[type[Rule]], texts: Sequence[str]) -> list[Part]:
    if len({" ".join(text.split()) for text in texts}) == 1:
        return [Part(None, texts[0])] if texts[0].strip() else []
    return [Part(side_name(side), text) for side, text in zip(sides, texts, strict=True) if text.strip()]


def _reference(source: str) -> Reference:
    document = re.split(r"[,:]\s", source, maxsplit=1)[0]
    return Reference(document, source[len(document) :], documents().get(document))


@lru_cache(maxsize=1)
def documents() -> dict[str, str]:
    """The addresses of documents by their names, as tclint's rules know them."""
    return packaged_toml(PACKAGE, DOCUMENTS)
