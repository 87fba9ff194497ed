"""Losses that are handed probabilities: they become the ones that take logits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tclint.core.finding import Finding
from tclint.edits.arguments import keyword
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import bindings, dotted, is_bound_otherwise
from tclint.edits.statements import remove

_SIGMOIDS = frozenset(("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit"))
_SOFTMAXES = frozenset(("torch.softmax", "torch.nn.functional.softmax"))
_INSTEAD = {
    "binary_cross_entropy": "binary_cross_entropy_with_logits",
    "nll_loss": "cross_entropy",
    "BCELoss": "BCEWithLogitsLoss",
    "NLLLoss": "CrossEntropyLoss",
}
_BINARY = ("binary_cross_entropy", "BCELoss")
_KEEP = ("squeeze", "view", "reshape", "flatten", "unsqueeze", "float", "to", "cuda", "contiguous")
"""Methods that may stand between the probabilities and the loss: they do the same to logits."""


class _Removal(NamedTuple):
    """A call that turns logits into probabilities, and what it is called with."""

    call: ast.Call
    logits: ast.expr


@codemod("AMP007", "ARC012")
def loss_of_logits(document: Document, finding: Finding) -> Proposal | None:
    """`binary_cross_entropy(sigmoid(x), y)` becomes `binary_cross_entropy_with_logits(x, y)`, as functions
    and as modules; so does the likelihood of the logarithm of a softmax."""
    call = document.find(finding.location, ast.Call)
    if call is None or not call.args or isinstance(call.args[0], ast.Starred):
        return None
    written = _qualified(document, call.func)
    if written.startswith("torch.nn.functional."):
        named: ast.expr | None = call.func
    else:
        named = _class_of(document, call.func)
        written = _qualified(document, named) if named is not None else ""
    last = written.rpartition(".")[2]
    if named is None or last not in _INSTEAD or not written.startswith("torch.nn."):
        return None
    renamed = _renamed(document, named, _INSTEAD[last])
    passed = _without_probabilities(document, call, call.args[0], binary=last in _BINARY)
    return unsafe([*renamed, *passed]) if renamed and passed else None


def _qualified(document: Document, node: ast.AST) -> str:
    """'torch.nn.functional.nll_loss' of `F.nll_loss`; '' where the root is not an import or is rebound."""
    name = dotted(node)
    root, _, rest = name.partition(".")
    found = [binding for binding in bindings(document) if binding.name == root]
    if not name or not found or is_bound_otherwise(document, root):
        return ""
    qualified = {binding.qualified for binding in found}
    if len(qualified) != 1:
        return ""
    return ".".join(part for part in (qualified.pop(), rest) if part)


def _class_of(document: Document, function: ast.expr) -> ast.expr | None:
    """The class that makes a loss module; None unless one assignment makes it and one call uses it."""
    if isinstance(function, ast.Call):
        return function.func  # nn.BCELoss()(x, y)
    name = dotted(function)
    if not name:
        return None
    uses = [
        node
        for node in document.walk(document.tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and dotted(node) == name
    ]
    made = [
        node
        for node in document.walk(document.tree)
        if isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets)
    ]
    if len(uses) != 1 or uses[0] is not function or len(made) != 1 or len(made[0].targets) != 1:
        return None
    value = made[0].value
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("cuda", "to")
    ):
        value = value.func.value
    return value.func if isinstance(value, ast.Call) else None


def _renamed(document: Document, node: ast.expr, new: str) -> list[Change]:
    """Another name behind the last dot; a bare name is renamed in its import as well."""
    end = document.end(node)
    if isinstance(node, ast.Attribute):
        return [Change(end - len(node.attr), end, new)]
    if not isinstance(node, ast.Name):
        return []
    found = [binding for binding in bindings(document) if binding.name == node.id]
    uses = [use for use in document.walk(document.tree) if isinstance(use, ast.Name) and use.id == node.id]
    taken = any(isinstance(use, ast.Name) and use.id == new for use in document.walk(document.tree))
    if len(found) != 1 or found[0].alias.asname or len(uses) != 1 or taken:
        return []
    alias = found[0].alias
    return [
        Change(document.start(alias), document.end(alias), new),
        Change(document.start(node), end, new),
    ]


def _without_probabilities(
    document: Document, call: ast.Call, passed: ast.expr, *, binary: bool
) -> list[Change]:
    """Hand over logits, in the call or in the one assignment that its argument comes from."""
    removal = _find(document, passed, binary=binary)
    if removal is not None:
        return _removed(document, removal)
    if not isinstance(passed, ast.Name):
        return []
    function = document.function(call)
    stores = list(_names(document, function, passed.id, ast.Store))
    if len(stores) != 1 or document.start(stores[0]) > document.start(call):
        return []
    statement = document.statement(stores[0])
    if not isinstance(statement, ast.Assign) or statement.targets != [stores[0]]:
        return []
    block = document.block(statement)
    if not any(item is outer for item in block for outer in (call, *document.ancestors(call))):
        return []
    removal = _find(document, statement.value, binary=binary)
    if removal is None:
        return []
    logits = removal.logits
    unchanged = (
        statement.value is removal.call
        and isinstance(logits, ast.Name)
        and logits.id != passed.id
        and not any(
            document.start(statement) < document.start(store) < document.start(call)
            for store in _names(document, function, logits.id, ast.Store)
        )
    )
    direct = Change(document.start(passed), document.end(passed), document.source(logits))
    if len(list(_names(document, function, passed.id, ast.Load))) > 1:
        # The probabilities are used elsewhere: pass what they were made of, where that is still the same.
        return [direct] if unchanged else []
    line_end = document.line_end(document.line_of(document.end(statement)))
    if unchanged and not document.has_comment(document.start(statement), line_end) and len(block) > 1:
        return [direct, remove(document, statement)]
    return _removed(document, removal)


def _names(
    document: Document, function: ast.AST, name: str, context: type[ast.expr_context]
) -> Iterator[ast.Name]:
    for node in document.walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, context):
            yield node


def _find(document: Document, value: ast.expr, *, binary: bool) -> _Removal | None:
    """What makes probabilities of logits in a value, below methods that only reshape or move."""
    while True:
        found = _sigmoid(document, value) if binary else _log_softmax(document, value)
        if found is not None:
            return found
        if not (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in _KEEP
            and not _qualified(document, value.func)
        ):
            return None
        value = value.func.value


def _sigmoid(document: Document, value: ast.expr) -> _Removal | None:
    if not isinstance(value, ast.Call) or value.keywords:
        return None
    if len(value.args) == 1 and not isinstance(value.args[0], ast.Starred):
        module = isinstance(value.func, ast.Call) and not value.func.args and not value.func.keywords
        if _qualified(document, value.func) in _SIGMOIDS or (
            module and isinstance(value.func, ast.Call) and _is_sigmoid_module(document, value.func)
        ):
            return _Removal(value, value.args[0])
        return None
    method = isinstance(value.func, ast.Attribute) and value.func.attr == "sigmoid" and not value.args
    if method and isinstance(value.func, ast.Attribute) and not _qualified(document, value.func):
        return _Removal(value, value.func.value)
    return None


def _is_sigmoid_module(document: Document, made: ast.Call) -> bool:
    return _qualified(document, made.func) in ("torch.nn.Sigmoid", "torch.nn.modules.activation.Sigmoid")


def _log_softmax(document: Document, value: ast.expr) -> _Removal | None:
    """`torch.log(torch.softmax(x, 1))` and its methods; another dim is not the one that the loss sums."""
    if not isinstance(value, ast.Call) or value.keywords:
        return None
    inner: ast.expr | None = None
    if _qualified(document, value.func) == "torch.log" and len(value.args) == 1:
        inner = value.args[0]
    elif isinstance(value.func, ast.Attribute) and value.func.attr == "log" and not value.args:
        inner = value.func.value
    if not isinstance(inner, ast.Call):
        return None
    if _qualified(document, inner.func) in _SOFTMAXES:
        logits, rest = (inner.args[0], inner.args[1:]) if inner.args else (None, [])
    elif isinstance(inner.func, ast.Attribute) and inner.func.attr == "softmax":
        logits, rest = inner.func.value, inner.args
    else:
        return None
    dim = keyword(inner, "dim")
    given = [*rest, *([dim.value] if dim is not None else [])]
    if logits is None or isinstance(logits, ast.Starred) or len(inner.keywords) != int(dim is not None):
        return None
    if len(given) != 1 or not isinstance(given[0], ast.Constant) or given[0].value != 1:
        return None
    return _Removal(value, logits)


def _removed(document: Document, removal: _Removal) -> list[Change]:
    """The logits alone, in parentheses where something else binds to them."""
    start, end = document.start(removal.call), document.end(removal.call)
    first, last = document.start(removal.logits), document.end(removal.logits)
    if document.has_comment(start, first) or document.has_comment(last, end):
        return []
    parent = document.parent(removal.call)
    alone = isinstance(parent, ast.Assign) or (
        isinstance(parent, ast.Call) and any(item is removal.call for item in parent.args)
    )
    simple = isinstance(removal.logits, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    bare = simple or (alone and not isinstance(removal.logits, ast.NamedExpr))
    return [Change(start, first, "" if bare else "("), Change(last, end, "" if bare else ")")]
