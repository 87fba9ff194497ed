"""Imports of a file: what a name is bound to, which bindings an edit orphans, where a first line goes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tclint.edits.document import Change, Document


class Binding(NamedTuple):
    """A name that an import statement binds."""

    name: str
    qualified: str
    """'torch.cuda.amp.autocast'; for `import torch.cuda.amp` it is 'torch'."""
    statement: ast.Import | ast.ImportFrom
    alias: ast.alias


def bindings(document: Document) -> Iterator[Binding]:
    """Every name that an import binds, relative and star imports left out."""
    for node in document.walk(document.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".", 1)[0]
                name, qualified = (alias.asname, alias.name) if alias.asname else (root, root)
                yield Binding(name, qualified, node, alias)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if alias.name != "*":
                    yield Binding(alias.asname or alias.name, f"{node.module}.{alias.name}", node, alias)


def dotted(node: ast.AST) -> str:
    """'torch.cuda.amp' of a name or of attributes of a name; '' for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def torch_name(document: Document) -> str | None:
    """What the module body calls torch; None where it does not import it at its top level."""
    for binding in bindings(document):
        if binding.qualified == "torch" and document.parent(binding.statement) is document.tree:
            return binding.name
    return None


def is_bound_otherwise(document: Document, name: str) -> bool:
    """Whether anything but an import binds a name somewhere in the file."""
    for node in ast.walk(document.tree):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.arg) and node.arg == name:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name == name:
            return True
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return True
    return False


def orphaned(document: Document, removed: ast.AST) -> list[Change]:
    """Changes that take out the imports of names that nothing uses once `removed` is gone.

    Only `from module import name` at the top level: a module is imported for more than its name. What
    may be there for others to import (`__all__`) stays.
    """
    gone = {id(node) for node in ast.walk(removed)}
    names = {node.id for node in ast.walk(removed) if isinstance(node, ast.Name)}
    used = {
        node.id for node in ast.walk(document.tree) if isinstance(node, ast.Name) and id(node) not in gone
    }
    quoted = {
        node.value
        for node in ast.walk(document.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    changes = []
    for name in sorted(names - used):
        if any(name in text for text in quoted if len(text) < 200):
            continue
        found = [binding for binding in bindings(document) if binding.name == name]
        if (
            len(found) == 1
            and isinstance(found[0].statement, ast.ImportFrom)
            and document.parent(found[0].statement) is document.tree
        ):
            change = remove_alias(document, found[0].statement, found[0].alias)
            if change is not None:
                changes.append(change)
    return changes


def remove_alias(
    document: Document, statement: ast.Import | ast.ImportFrom, alias: ast.alias
) -> Change | None:
    """Take one name out of an import statement, or the statement where it was the only name."""
    from tclint.edits.statements import is_first_on_line, is_last_on_line, remove

    if len(statement.names) == 1:
        if not is_first_on_line(document, statement) or not is_last_on_line(document, statement):
            return None
        if document.has_comment(
            document.start(statement), document.line_end(_last_line(document, statement))
        ):
            return None
        return remove(document, statement)
    at = next(index for index, item in enumerate(statement.names) if item is alias)
    if at + 1 < len(statement.names):
        start, end = document.start(alias), document.start(statement.names[at + 1])
    else:
        start, end = document.end(statement.names[at - 1]), document.end(alias)
    return None if document.has_comment(start, end) else Change(start, end, "")


def _last_line(document: Document, statement: ast.stmt) -> int:
    return document.line_of(document.end(statement))


def after_imports(document: Document, codes: Iterable[str]) -> Change | None:
    """Put statements behind the imports at the top of the module, set off by a blank line.

    None where the module does not begin with imports, or one of them shares its line.
    """
    from tclint.edits.statements import is_first_on_line, is_last_on_line

    last: ast.stmt | None = None
    for statement in document.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            last = statement
        elif last is not None and not _guards_import(statement):
            break
        elif last is None and not _is_docstring(statement) and not _guards_import(statement):
            return None
    if last is None or not is_first_on_line(document, last) or not is_last_on_line(document, last):
        return None
    line = document.line_of(document.end(last))
    newline = document.newline
    at = document.line_end(line)
    block = newline.join(codes)
    following = document.line(line + 1).strip()
    blank = newline if following else ""
    return Change(at, at, f"{newline}{newline}{block}{blank}")


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _guards_import(statement: ast.stmt) -> bool:
    """`try: import x` and `if ...: import x` among the imports."""
    return isinstance(statement, ast.Try | ast.If) and all(
        isinstance(item, ast.Import | ast.ImportFrom | ast.Assign | ast.Pass) for item in statement.body
    )
