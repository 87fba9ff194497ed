"""Fix of biases that a batch norm takes away again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tclint.core.finding import Finding
from tclint.edits.arguments import append_argument, keyword
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.document import Document
from tclint.edits.imports import dotted

_PUBLISHED = re.compile(
    r"load_url|from_url|pretrained|hf_hub|model_urls|weightsenum|register_model|download|load_model|load_weights"
)
"""Identifiers, in lower case, of files whose models load weights that somebody has published."""
_BIASED = re.compile(r"Conv|Linear")


@codemod("ARC001")
def without_bias(document: Document, finding: Finding) -> Proposal | None:
    """Build the layer with bias=False."""
    call = document.find(finding.location, ast.Call)
    if call is None or keyword(call, "bias") is not None:
        return None
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    if any(_PUBLISHED.search(name.lower()) for name in _identifiers(document)) or _needs_bias(document):
        return None
    return unsafe(append_argument(document, call, "bias=False"))


def _identifiers(document: Document) -> Iterator[str]:
    for node in document.walk(document.tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case _:
                pass


def _needs_bias(document: Document) -> bool:
    """Some code may take the bias of the layer for a tensor: it would find None."""
    for node in document.walk(document.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value == "bias" or ".bias" in node.value:
                return True
        elif isinstance(node, ast.Attribute) and node.attr == "bias" and isinstance(node.ctx, ast.Load):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                continue  # of the class itself
            if not (_is_tested(document, node) or _is_guarded(document, node) or _is_other(document, node)):
                return True
    return False


def _is_tested(document: Document, node: ast.Attribute) -> bool:
    """`conv.bias is None`, or the condition itself."""
    parent = document.parent(node)
    if isinstance(parent, ast.Compare):
        return isinstance(parent.ops[0], ast.Is | ast.IsNot)
    return isinstance(parent, ast.If | ast.IfExp) and parent.test is node


def _is_guarded(document: Document, node: ast.Attribute) -> bool:
    """Under a test of that bias, or one that only layers without such a bias pass."""
    inner: ast.AST = node
    for outer in document.ancestors(node):
        if isinstance(outer, ast.If) and any(inner is item for item in outer.body):
            tests = list(ast.walk(outer.test))
            if any(isinstance(test, ast.Attribute) and ast.dump(test) == ast.dump(node) for test in tests):
                return True
            names = [dotted(test).rpartition(".")[2] for test in tests]
            names += [str(test.value) for test in tests if isinstance(test, ast.Constant)]
            if any("Norm" in name for name in names) and not any(_BIASED.search(name) for name in names):
                return True
        inner = outer
    return False


def _is_other(document: Document, node: ast.Attribute) -> bool:
    """`self.out.bias` where every `out` that the file assigns is made by something without Conv or Linear
    in its name."""
    if not isinstance(node.value, ast.Attribute) or not dotted(node.value):
        return False
    made = [
        item.value
        for item in document.walk(document.tree)
        if isinstance(item, ast.Assign)
        and any(isinstance(to, ast.Attribute) and to.attr == node.value.attr for to in item.targets)
    ]
    return bool(made) and all(
        isinstance(value, ast.Call) and dotted(value.func) and not _BIASED.search(dotted(value.func))
        for value in made
    )
