"""Fix of checkpoints without the scaler: save its state beside the optimizer's, load it there too."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.arguments import append_argument, append_item
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted
from tclint.edits.statements import indentation, insert_after, is_first_on_line, is_last_on_line

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@codemod("AMP018")
def save_and_load_scaler(document: Document, finding: Finding) -> Proposal | None:
    """Both or nothing: a state that is saved and never loaded is of no use."""
    if len(finding.related) < 2:
        return None
    made = document.find(finding.related[0].location, ast.Call)
    state = document.find(finding.related[1].location, ast.Call)
    assignment = document.statement(made) if made is not None else None
    if made is None or state is None or not isinstance(assignment, ast.Assign):
        return None
    scaler = dotted(assignment.targets[0])
    if assignment.value is not made or len(assignment.targets) != 1 or not scaler:
        return None
    optimizer = dotted(state.func).rpartition(".")[0]
    saved = _saved(document, state, scaler)
    if saved is None:
        return None
    key, changes = saved
    loads = [
        node
        for node in document.walk(document.tree)
        if isinstance(node, ast.Call) and dotted(node.func).endswith(".load_state_dict")
    ]
    mine = [load for load in loads if dotted(load.func).rpartition(".")[0] == optimizer]
    if len(mine) != 1:
        return None
    loaded = _loaded(document, mine[0], scaler, key)
    if loaded is None or not all(_reaches(document, assignment, scaler, use) for use in (state, mine[0])):
        return None
    return unsafe([*changes, loaded])


def _saved(document: Document, state: ast.Call, scaler: str) -> tuple[str, list[Change]] | None:
    """The key of the optimizer's state, and the changes that put the scaler's beside it."""
    parent = document.parent(state)
    if isinstance(parent, ast.Dict):
        at = next(index for index, item in enumerate(parent.values) if item is state)
        key = parent.keys[at]
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        quote = document.quote
        added = append_item(document, parent, f"{quote}scaler{quote}: {scaler}.state_dict()")
        return (key.value, added) if added else None
    call = document.parent(parent) if isinstance(parent, ast.keyword) else None
    if isinstance(parent, ast.keyword) and parent.arg and isinstance(call, ast.Call):
        added = append_argument(document, call, f"scaler={scaler}.state_dict()")
        return (parent.arg, added) if added else None
    return None


def _loaded(document: Document, load: ast.Call, scaler: str, key: str) -> Change | None:
    """The scaler's state loaded behind the optimizer's, where the checkpoint has one."""
    statement = document.statement(load)
    given = load.args[0] if load.args else None
    if not isinstance(statement, ast.Expr) or statement.value is not load:
        return None
    if not isinstance(given, ast.Subscript) or not isinstance(given.slice, ast.Constant):
        return None
    checkpoint = dotted(given.value)
    if given.slice.value != key or not checkpoint:
        return None
    if not is_first_on_line(document, statement) or not is_last_on_line(document, statement):
        return None
    quote = document.quote
    deeper = "\t" if any(line.startswith("\t") for line in document.text.splitlines()) else "    "
    outer = indentation(document, statement)
    code = (
        f"if {quote}scaler{quote} in {checkpoint}:{document.newline}"
        f"{outer}{deeper}{scaler}.load_state_dict({checkpoint}[{quote}scaler{quote}])"
    )
    return insert_after(document, statement, code)


def _reaches(document: Document, made: ast.Assign, scaler: str, use: ast.AST) -> bool:
    """The name means the scaler at the use, and the scaler is made by then."""
    maker, user = document.function(made), document.function(use)
    if "." in scaler:
        return scaler.startswith("self.") and _class_around(document, made) is _class_around(document, use)
    if maker is user:
        return document.start(made) < document.start(use)
    return isinstance(maker, (ast.Module, *_FUNCTIONS)) and any(
        outer is maker for outer in document.ancestors(user)
    )


def _class_around(document: Document, node: ast.AST) -> ast.AST | None:
    return next((outer for outer in document.ancestors(node) if isinstance(outer, ast.ClassDef)), None)
