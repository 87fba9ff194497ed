"""Fixes that add or take out one argument of a call."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.arguments import append_argument, keyword, remove_argument
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted


@codemod("RUN007")
def pin_memory(document: Document, finding: Finding) -> Proposal | None:
    """Pin the loader's batches."""
    return _with_argument(document, finding, "pin_memory", "True")


@codemod("RUN010")
def drop_last(document: Document, finding: Finding) -> Proposal | None:
    """Drop the odd last batch."""
    return _with_argument(document, finding, "drop_last", "True")


@codemod("RUN012")
def fused_optimizer(document: Document, finding: Finding) -> Proposal | None:
    """Use the fused kernel of the optimizer."""
    call = document.find(finding.location, ast.Call)
    if call is not None and keyword(call, "foreach") is not None:
        return None
    return _with_argument(document, finding, "fused", "True")


@codemod("ARC017")
def no_attention_weights(document: Document, finding: Finding) -> Proposal | None:
    """Do not compute the weights that nobody reads."""
    return _with_argument(document, finding, "need_weights", "False")


@codemod("DIM008")
def pad_to_multiple(document: Document, finding: Finding) -> Proposal | None:
    """Pad sequences to a multiple of 8."""
    return _with_argument(document, finding, "pad_to_multiple_of", "8")


@codemod("RUN008")
def copy_asynchronously(document: Document, finding: Finding) -> Proposal | None:
    """Copy from pinned memory without waiting."""
    proposal = _with_argument(document, finding, "non_blocking", "True")
    pinned = any("pin" in str(key).lower() and value for key, value in finding.evidence.items())
    return proposal._replace(safety="safe") if proposal is not None and pinned else proposal


def _with_argument(document: Document, finding: Finding, name: str, value: str) -> Proposal | None:
    call = document.find(finding.location, ast.Call)
    if call is None or any(item.arg is None for item in call.keywords):
        return None
    if any(isinstance(item, ast.Starred) for item in call.args):
        return None
    given = keyword(call, name)
    if given is None:
        return unsafe(append_argument(document, call, f"{name}={value}"))
    if isinstance(given.value, ast.Constant) and str(given.value.value) != value:
        return unsafe(Change(document.start(given.value), document.end(given.value), value))
    return None


@codemod("RUN011")
def gradients_to_none(document: Document, finding: Finding) -> Proposal | None:
    """Take out set_to_none=False; the default frees the gradients instead of filling them with zeros."""
    call = document.find(finding.location, ast.Call)
    if call is None:
        return None
    given: ast.expr | ast.keyword | None = keyword(call, "set_to_none")
    value = given.value if isinstance(given, ast.keyword) else None
    if given is None and len(call.args) == 1 and not call.keywords:
        given = value = call.args[0]
    if given is None or not isinstance(value, ast.Constant) or value.value is not False:
        return None
    return unsafe(remove_argument(document, call, given))


@codemod("RUN015")
def create_on_device(document: Document, finding: Finding) -> Proposal | None:
    """`torch.rand(8).to(device)` becomes `torch.rand(8, device=device)`."""
    call = document.find(finding.location, ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute) or call.keywords:
        return None
    inner = call.func.value
    if not isinstance(inner, ast.Call) or keyword(inner, "device") is not None:
        return None
    if call.func.attr == "cuda" and not call.args:
        device = f"{document.quote}cuda{document.quote}"
    elif call.func.attr == "to" and len(call.args) == 1 and _is_device(call.args[0]):
        device = document.source(call.args[0])
    else:
        return None
    start, end = document.end(inner), document.end(call)
    # A line of its own, or a comment, says that the author set the copy apart.
    if document.line_of(start) != document.line_of(end) or document.text[start] != ".":
        return None
    added = append_argument(document, inner, f"device={device}")
    return None if added is None else unsafe([*added, Change(start, end, "")])


def _is_device(argument: ast.expr) -> bool:
    if isinstance(argument, ast.Constant):
        return isinstance(argument.value, str)
    return dotted(argument).endswith("device")
