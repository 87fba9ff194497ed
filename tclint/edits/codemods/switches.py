"""Fixes of the switches for precision, cuDNN and debugging."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, safe, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import after_imports, bindings, dotted, orphaned, torch_name
from tclint.edits.statements import dedent_tail, remove


@codemod("PRC001")
def allow_tf32(document: Document, _: Finding) -> Proposal | None:
    """Set the precision of float32 matrix products behind the imports."""
    torch = torch_name(document)
    if torch is None:
        return None
    quote = document.quote
    return unsafe(after_imports(document, [f"{torch}.set_float32_matmul_precision({quote}high{quote})"]))


@codemod("RUN001")
def benchmark_cudnn(document: Document, _: Finding) -> Proposal | None:
    """Let cuDNN measure its algorithms; set behind the imports."""
    torch = torch_name(document)
    if torch is None:
        return None
    cudnn = next(
        (item.name for item in bindings(document) if item.qualified == "torch.backends.cudnn"),
        f"{torch}.backends.cudnn",
    )
    return unsafe(after_imports(document, [f"{cudnn}.benchmark = True"]))


@codemod("RUN002")
def switch_benchmark_on(document: Document, finding: Finding) -> Proposal | None:
    """False becomes True."""
    statement = document.find(finding.location, ast.Assign)
    if statement is None:
        return None
    if not isinstance(statement.value, ast.Constant) or statement.value.value is not False:
        return None
    if not all(dotted(target).endswith("cudnn.benchmark") for target in statement.targets):
        return None
    return unsafe(Change(document.start(statement.value), document.end(statement.value), "True"))


@codemod("PRC005")
def correct_precision(document: Document, finding: Finding) -> Proposal | None:
    """Write the value that torch accepts, where it is clear which one is meant."""
    meant, value = finding.evidence.get("replacement"), finding.evidence.get("value")
    root: ast.AST | None = None
    for kind in (ast.Call, ast.stmt, ast.Constant):
        root = root or document.find(finding.location, kind)
    if root is None or not isinstance(meant, str):
        return None
    wrong = [node for node in ast.walk(root) if isinstance(node, ast.Constant) and node.value == value]
    if len(wrong) != 1:
        return None
    text = document.source(wrong[0])
    # Prefixes and escapes have other offsets than the value.
    if text[1:-1] != value:
        return None
    start = document.start(wrong[0])
    return safe(Change(start + 1, start + len(text) - 1, meant))


@codemod("RUN005")
def remove_debugging(document: Document, finding: Finding) -> Proposal | None:
    """Take out what switches a debugging aid on: a statement, or a with block around others."""
    call = document.find(finding.location, ast.Call)
    statement = document.statement(call) if call is not None else None
    if call is None or statement is None:
        return None
    last = dotted(call.func).rpartition(".")[2]
    if isinstance(statement, ast.With) and last in ("detect_anomaly", "set_detect_anomaly", "emit_nvtx"):
        if len(statement.items) != 1 or statement.items[0].context_expr is not call:
            return None
        changes = dedent_tail(document, statement, 0)
        return unsafe([*changes, *orphaned(document, call)]) if changes else None
    if not isinstance(statement, ast.Expr) or statement.value is not call or last != "set_detect_anomaly":
        return None
    return unsafe([remove(document, statement), *orphaned(document, statement)])


@codemod("PRC004")
def one_tf32_api(document: Document, finding: Finding) -> Proposal | None:
    """Take the older switch out: the newer one, which is set after it, is what counts."""
    newer = document.find(finding.location, ast.stmt)
    if not isinstance(newer, ast.Assign) or not finding.related:
        return None
    place = finding.related[0].location
    node = document.find(place, ast.stmt) or document.find(place, ast.Call)
    older = document.statement(node) if node is not None else None
    if isinstance(older, ast.Assign):
        if len(older.targets) != 1:
            return None
        written = dotted(older.targets[0])
        # The older switch of cuDNN is for convolutions and recurrent layers at once.
        parts = any(
            dotted(target).endswith((".conv.fp32_precision", ".rnn.fp32_precision"))
            for target in newer.targets
        )
        if not written.endswith(".allow_tf32") or (parts and "matmul" not in written):
            return None
    elif not isinstance(older, ast.Expr) or not isinstance(older.value, ast.Call):
        return None
    # Under a test it is somebody's choice.
    if isinstance(document.parent(older), ast.If | ast.Try | ast.For | ast.While | ast.With):
        return None
    return unsafe(
        remove(document, older), "Set TF32 through one API only: the older switch before this one goes."
    )
