"""HTML reports in tests: a graph to draw, and a page read by Python's own HTML parser."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

from cost_support import GraphBuilder
from sample_report import ENTRY

from tclint.engine.report import Entry
from tclint.graph.ops import Graph, Site

VOID = {"meta", "input", "br", "img", "link"}


def chain(op_count: int, layer: str = "blocks.{}.fc", path: str = "model.py") -> Graph:
    """Linear layers and activations in turn, in a module each; every size is different."""
    builder = GraphBuilder()
    x = builder.input(64, 512)
    for number in range(op_count // 2):
        x = builder.linear(x, 512 + 8 * (number % 97), name=f"fc{number}")
        x = builder.op("relu", "elementwise", {"self": x}, *x.shape)
    graph = builder.graph(x)
    ops = tuple(
        replace(
            op, module_path=layer.replace("{}", str(op.index // 2)), construct_site=Site(path, 1 + op.index)
        )
        for op in graph.ops
    )
    return replace(graph, ops=ops)


def traced_entry(op_count: int = 12, **names: str) -> Entry:
    """The sample entry with a graph."""
    return replace(ENTRY, graph=chain(op_count, **names))


@dataclass
class Page(HTMLParser):
    """Elements, attributes and text of a document, as a browser without scripts would see them."""

    source: str
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""
    raw: list[tuple[dict[str, str | None], str]] = field(default_factory=list)
    """Attributes and content of every script and style."""
    comments: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "style"):
            self.raw.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            attributes, content = self.raw.pop()
            self.raw.append((attributes, content + data))
        else:
            self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def data(self) -> Any:
        (island,) = [content for attributes, content in self.raw if attributes.get("id") == "data"]
        return json.loads(island)
