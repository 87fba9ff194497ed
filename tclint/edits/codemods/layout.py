"""Fixes of memory formats."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.arguments import append_argument, keyword
from tclint.edits.codemod import Proposal, codemod, safe, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted, torch_name


@codemod("FMT002")
def assign_converted(document: Document, finding: Finding) -> Proposal | None:
    """`x.to(memory_format=...)` becomes `x = x.to(memory_format=...)`."""
    call = document.find(finding.location, ast.Call)
    statement = document.statement(call) if call is not None else None
    if call is None or not isinstance(statement, ast.Expr) or statement.value is not call:
        return None
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if receiver is None or not isinstance(receiver, ast.Name | ast.Attribute | ast.Subscript):
        return None
    if isinstance(receiver, ast.Subscript):
        if not dotted(receiver.value) or not isinstance(receiver.slice, ast.Constant | ast.Name):
            return None
    elif not dotted(receiver):
        return None
    if isinstance(receiver, ast.Name) and not _is_local(document, call, receiver.id):
        return None
    start = document.start(statement)
    change = Change(start, start, f"{document.source(receiver)} = ")
    # Other arguments move or cast as well; without the assignment they did nothing either.
    only = not call.args and len(call.keywords) == 1
    return safe(change) if only else unsafe(change)


def _is_local(document: Document, node: ast.AST, name: str) -> bool:
    """Whether assigning a name there means the same variable: bound in the same function."""
    function = document.function(node)
    if isinstance(function, ast.Module):
        return True
    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        arguments = function.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        if any(argument.arg == name for argument in every):
            return True
    for statement in getattr(function, "body", []):
        for inner in document.walk(statement, into_functions=False):
            if isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Store):
                return True
            if isinstance(inner, ast.Global | ast.Nonlocal) and name in inner.names:
                return True
    return False


@codemod("FMT005")
def three_dimensional(document: Document, finding: Finding) -> Proposal | None:
    """`torch.channels_last` becomes `torch.channels_last_3d` for what has five dims."""
    if (
        5 not in (finding.evidence.get("rank"), finding.evidence.get("dims"))
        and "3d" not in str(finding.evidence).lower()
    ):
        return None
    root = document.find(finding.location, ast.Call)
    if root is None:
        return None
    formats = [
        node for node in ast.walk(root) if isinstance(node, ast.Attribute) and node.attr == "channels_last"
    ]
    if len(formats) != 1:
        return None
    end = document.end(formats[0])
    return safe(Change(end, end, "_3d"))


@codemod("FMT007")
def convert_with_to(document: Document, finding: Finding) -> Proposal | None:
    """`.contiguous(memory_format=...)` becomes `.to(memory_format=...)`."""
    call = document.find(finding.location, ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr != "contiguous":
        return None
    if keyword(call, "memory_format") is None:
        return None
    end = document.end(call.func)
    return safe(Change(end - len("contiguous"), end, "to"))


@codemod("FMT003")
def convert_batch(document: Document, finding: Finding) -> Proposal | None:
    """`images.to(device)` becomes `images.to(device, memory_format=torch.channels_last)`."""
    call = document.find(finding.location, ast.Call)
    torch = torch_name(document)
    if call is None or torch is None or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr not in ("to", "cuda") or keyword(call, "memory_format") is not None:
        return None
    return unsafe(append_argument(document, call, f"memory_format={torch}.channels_last"))


@codemod("FMT004")
def convert_model(document: Document, finding: Finding) -> Proposal | None:
    """Convert the model where the file makes it."""
    name, torch = finding.evidence.get("model"), torch_name(document)
    made = [
        node
        for node in document.walk(document.tree)
        if isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets)
    ]
    if torch is None or len(made) != 1 or not isinstance(made[0].value, ast.Call):
        return None
    end = document.end(made[0].value)
    return unsafe(Change(end, end, f".to(memory_format={torch}.channels_last)"))


_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "DDP", "DP", "convert_sync_batchnorm"})
_RETURN_THEMSELVES = frozenset({"cuda", "to", "train", "float", "requires_grad_"})


@codemod("FMT001")
def convert_model_and_batch(document: Document, finding: Finding) -> Proposal | None:
    """Convert the model where the file makes it, and the batch where it is copied to the GPU."""
    made, torch = document.find(finding.location, ast.Call), torch_name(document)
    statement = document.statement(made) if made is not None else None
    if made is None or torch is None or not isinstance(statement, ast.Assign):
        return None
    if not finding.evidence.get("made_in_one_place") or finding.evidence.get("views"):
        return None
    if len(statement.targets) != 1 or not dotted(statement.targets[0]) or not _holds(statement.value, made):
        return None
    end = document.end(statement.value)
    changes = [Change(end, end, f".to(memory_format={torch}.channels_last)")]
    for related in finding.related:
        copy = document.find(related.location, ast.Call)
        if copy is not None and isinstance(copy.func, ast.Attribute) and copy.func.attr in ("to", "cuda"):
            changes += append_argument(document, copy, f"memory_format={torch}.channels_last") or []
    return unsafe(changes)


def _holds(value: ast.expr, made: ast.Call) -> bool:
    """The value is the model, moved or wrapped: `nn.DataParallel(Net()).cuda()`."""
    while value is not made:
        if not isinstance(value, ast.Call):
            return False
        if dotted(value.func).rpartition(".")[2] in _WRAPPERS and value.args:
            value = value.args[0]
        elif isinstance(value.func, ast.Attribute) and value.func.attr in _RETURN_THEMSELVES:
            value = value.func.value
        else:
            return False
    return True
