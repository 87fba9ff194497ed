"""torch.cuda.amp becomes torch.amp: calls, decorators, annotations and the imports they came through."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tclint.core.finding import Finding
from tclint.edits.arguments import append_argument, prepend_argument
from tclint.edits.codemod import Proposal, codemod, safe, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import Binding, bindings, dotted, is_bound_otherwise, remove_alias
from tclint.edits.statements import insert_before, is_first_on_line
from tclint.edits.torch_pin import oldest_torch

_OLD = "torch.cuda.amp"
_NAMES = frozenset(("autocast", "GradScaler", "custom_fwd", "custom_bwd"))
_AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")
_SINCE = (2, 4)
"""torch.amp has all four names since this version, and torch.cuda.amp warns."""


@codemod("AMP014")
def modern_amp(document: Document, finding: Finding) -> Proposal | None:
    """Rewrite all uses of the import that the finding's place depends on, and the import."""
    place = document.offset(finding.location.line, finding.location.column)
    for binding in bindings(document):
        uses = list(_uses(document, binding))
        inside_import = document.start(binding.statement) <= place < document.end(binding.statement)
        at_use = any(start <= place < end for start, end in (_place(document, node) for node in uses))
        if not at_use and not (inside_import and _is_old(binding)):
            continue
        changes = _changes(document, binding)
        if not changes:
            continue
        oldest = oldest_torch(finding.location.path)
        return safe(changes) if oldest is not None and oldest >= _SINCE else unsafe(changes)
    return None


def _is_old(binding: Binding) -> bool:
    return binding.qualified.startswith(_OLD) or binding.alias.name.startswith(_OLD)


def _place(document: Document, node: ast.AST) -> tuple[int, int]:
    """Where a finding on a use can stand: at the name, the call, or the function that it decorates."""
    parent = document.parent(node)
    if isinstance(parent, ast.Call):
        return document.start(parent), document.end(parent)
    if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and node in parent.decorator_list:
        return document.start(node), document.start(parent.body[0])
    return document.start(node), document.end(node)


def _uses(document: Document, binding: Binding) -> Iterator[ast.AST]:
    """Nodes that name something of torch.cuda.amp through a binding: the whole dotted name."""
    if binding.qualified.startswith(_OLD + "."):
        yield from _named(document, binding.name)
        return
    prefix = {"torch": f"{binding.name}.cuda.amp.", _OLD: f"{binding.name}."}.get(binding.qualified)
    if prefix is None:
        return
    for node in document.walk(document.tree):
        if isinstance(node, ast.Attribute) and node.attr in _NAMES and dotted(node) == prefix + node.attr:
            yield node


def _named(document: Document, name: str) -> Iterator[ast.Name]:
    for node in document.walk(document.tree):
        if isinstance(node, ast.Name) and node.id == name:
            yield node


def _changes(document: Document, binding: Binding) -> list[Change] | None:
    """Everything that has to change for one binding; None where some of it cannot."""
    if document.text.find("set_autocast") >= 0:
        return None  # another default dtype is set somewhere
    if binding.qualified == "torch":
        return _through_torch(document, binding)
    statement = binding.statement
    in_place = isinstance(document.parent(statement), ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)
    if not in_place or not is_first_on_line(document, statement):
        return None
    if isinstance(statement, ast.ImportFrom) and statement.module == _OLD:
        # All names of one statement move together.
        together = [other for other in bindings(document) if other.statement is statement]
        changes: list[Change] = []
        for other in together:
            rewritten = _rewritten(document, other) if other.alias.name in _NAMES else None
            if rewritten is None:
                return None
            changes += rewritten
        return _without(document, statement, "cuda.", together[0].alias, changes)
    rewritten = _rewritten(document, binding)
    if rewritten is None:
        return None
    if isinstance(statement, ast.Import) and binding.alias.asname:
        start = document.start(binding.alias)
        if document.text.startswith(_OLD, start):
            return [*rewritten, Change(start + len("torch."), start + len("torch.cuda."), "")]
        return None
    if isinstance(statement, ast.ImportFrom) and statement.module == "torch.cuda":
        if len(statement.names) == 1:
            return _without(document, statement, ".cuda", binding.alias, rewritten)
        gone = remove_alias(document, statement, binding.alias)
        if gone is None:
            return None
        renamed = f" as {binding.alias.asname}" if binding.alias.asname else ""
        line = insert_before(document, statement, f"from torch import amp{renamed}")
        return [line, gone, *rewritten]
    return None


def _without(
    document: Document, statement: ast.stmt, part: str, alias: ast.alias, changes: list[Change]
) -> list[Change] | None:
    """The changes, and one that takes a part out of the module's name in `from module import ...`."""
    at = document.text.find(part, document.start(statement), document.start(alias))
    return None if at < 0 else [*changes, Change(at, at + len(part), "")]


def _through_torch(document: Document, binding: Binding) -> list[Change] | None:
    changes: list[Change] = []
    complete = True
    for node in _uses(document, binding):
        assert isinstance(node, ast.Attribute)
        arguments = _call(document, node, node.attr)
        text = document.source(node)
        at = text.find(".cuda.amp.")
        if arguments is None or at < 0:
            complete = False
            continue
        start = document.start(node) + at
        changes += [Change(start, start + len(".cuda"), ""), *arguments]
    if changes and complete:
        rest = any(
            dotted(node) == f"{binding.name}.cuda.amp" and not _is_known(document, node)
            for node in document.walk(document.tree)
            if isinstance(node, ast.Attribute)
        )
        for other in bindings(document) if not rest else ():
            # `import torch.cuda.amp` was there for these uses alone.
            if other.alias.name == _OLD and other.alias.asname is None:
                start = document.start(other.alias)
                if document.text.startswith(_OLD, start):
                    changes.append(Change(start + len("torch."), start + len("torch.cuda."), ""))
    return changes or None


def _is_known(document: Document, node: ast.AST) -> bool:
    parent = document.parent(node)
    return isinstance(parent, ast.Attribute) and parent.attr in _NAMES


def _rewritten(document: Document, binding: Binding) -> list[Change] | None:
    """Changes of all uses of an imported name or module; None where one of them cannot be rewritten."""
    names = [other for other in bindings(document) if other.name == binding.name]
    if len(names) != 1 or is_bound_otherwise(document, binding.name) or _is_exported(document, binding):
        return None
    changes: list[Change] = []
    found = False
    for node in _named(document, binding.name):
        found = True
        used: ast.AST = node
        name = binding.qualified.rpartition(".")[2]
        if binding.qualified == _OLD:
            parent = document.parent(node)
            if not isinstance(parent, ast.Attribute) or parent.attr not in _NAMES:
                return None
            used, name = parent, parent.attr
        arguments = _call(document, used, name)
        if arguments is None:
            return None
        changes += arguments
    return changes if found else None


def _is_exported(document: Document, binding: Binding) -> bool:
    """Other files may import the name from here and call it the old way."""
    return any(
        isinstance(node, ast.Constant) and node.value == binding.name for node in ast.walk(document.tree)
    )


def _call(document: Document, node: ast.AST, name: str) -> list[Change] | None:
    """Changes of the arguments where torch.cuda.amp's `name` is used; None for a use that is not known."""
    parent = document.parent(node)
    cuda = f"{document.quote}cuda{document.quote}"
    if isinstance(parent, ast.Call) and parent.func is node:
        if name == "autocast":
            return _autocast(document, parent, cuda)
        if name == "GradScaler":
            return prepend_argument(document, parent, cuda)
        add = append_argument if parent.args else prepend_argument
        return add(document, parent, f"device_type={cuda}")
    if name in ("custom_fwd", "custom_bwd"):
        decorated = getattr(parent, "decorator_list", ())
        if any(item is node for item in decorated):
            end = document.end(node)
            return [Change(end, end, f"(device_type={cuda})")]
        return None
    if name == "GradScaler" and _only_named(document, node):
        return []
    if name == "autocast" and _is_partial(parent, node):
        # `partial(autocast, True)` binds a position that moves.
        end = document.end(node)
        return [Change(end, end, f", {cuda}")]
    return None


def _is_partial(call: ast.AST | None, node: ast.AST) -> bool:
    return (
        isinstance(call, ast.Call)
        and dotted(call.func).rpartition(".")[2] == "partial"
        and len(call.args) == 1
        and call.args[0] is node
    )


def _only_named(document: Document, node: ast.AST) -> bool:
    """An annotation, or the class that isinstance asks for."""
    child = node
    for outer in document.ancestors(node):
        if isinstance(outer, ast.arg | ast.AnnAssign) and outer.annotation is child:
            return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            return outer.returns is child
        if isinstance(outer, ast.Call):
            return getattr(outer.func, "id", "") == "isinstance" and child in outer.args[1:]
        if isinstance(outer, ast.stmt):
            return False
        child = outer
    return False


def _autocast(document: Document, call: ast.Call, cuda: str) -> list[Change] | None:
    """The device first; arguments that were positional get their names, for their order has changed."""
    if any(isinstance(item, ast.Starred) for item in call.args) or len(call.args) > len(_AUTOCAST_PARAMETERS):
        return None
    changes = prepend_argument(document, call, cuda)
    if changes is None:
        return None
    for argument, name in zip(call.args, _AUTOCAST_PARAMETERS, strict=False):
        start = document.start(argument)
        before = document.text[:start].rstrip()
        if before.endswith("(") and argument is not call.args[0]:
            return None  # `autocast(a, (b))`: rare enough
        changes.append(Change(start, start, f"{name}="))
    return changes
