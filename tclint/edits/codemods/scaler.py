"""Fix of training in float16 without loss scaling: make a scaler and route the step through it."""

from __future__ import annotations

import ast

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, unsafe
from tclint.edits.codemods.scaling import clips_in, scaled, uses
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted, torch_name
from tclint.edits.statements import insert_after, insert_before, is_first_on_line

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_PLAIN = (ast.With, ast.If)


@codemod("AMP001")
def scale_losses(document: Document, finding: Finding) -> Proposal | None:
    """Make a scaler before the training loop; scale the loss, step and update through it.

    Only where forward, backward and step stand in one function, in loops that begin there: a scaler has to
    live as long as the training.
    """
    call = document.find(finding.location, ast.Call)
    torch = torch_name(document)
    if call is None or torch is None or not isinstance(call.func, ast.Attribute):
        return None
    if "scaler" in document.text or call.func.attr != "backward":
        return None
    function = document.function(call)
    loops = [outer for outer in document.ancestors(call) if isinstance(outer, _LOOPS)]
    loops = [loop for loop in loops if document.function(loop) is function]
    if not loops or not _lives_long(function, len(loops)):
        return None
    backwards = [use.call for use in uses(document, function, "backward")]
    steps = [use for use in uses(document, function, "step") if "opt" in use.receiver.lower()]
    # All of the function is one step: one optimizer, one place where it steps.
    if len(backwards) != 1 or backwards[0] is not call or len(steps) != 1 or call.args or call.keywords:
        return None
    step = steps[0]
    statement = document.statement(step.call)
    if not isinstance(statement, ast.Expr) or statement.value is not step.call or step.call.args:
        return None
    if loops[-1] not in list(document.ancestors(step.call)) or step.call.keywords:
        return None
    outermost = loops[-1]
    if not is_first_on_line(document, outermost) or document.start(step.call) < document.start(call):
        return None
    enabled = _enabled(document, finding, function)
    if enabled is None:
        return None
    quote = document.quote
    changes = [
        insert_before(document, outermost, f"scaler = {torch}.amp.GradScaler({quote}cuda{quote}{enabled})"),
        *scaled(document, call, "scaler"),
        Change(document.start(step.call), document.end(step.call), f"scaler.step({step.receiver})"),
        insert_after(document, statement, "scaler.update()"),
    ]
    block = document.block(statement)
    at = next(index for index, item in enumerate(block) if item is statement)
    clipping = [item for item in block[:at] if clips_in(document, item)]
    if clips_in(document, outermost) != sum(clips_in(document, item) for item in clipping):
        return None
    if clipping:
        if document.start(clipping[0]) < document.start(call):
            return None
        changes.append(insert_before(document, clipping[0], f"scaler.unscale_({step.receiver})"))
    return unsafe(changes, "Scale the loss with one torch.amp.GradScaler, made before the training loop.")


def _lives_long(function: ast.AST, depth: int) -> bool:
    """The outermost loop is the whole training: the module's, or one of epochs."""
    return isinstance(function, ast.Module) or depth > 1


def _enabled(document: Document, finding: Finding, function: ast.AST) -> str | None:
    """The scaler's `enabled` argument, as autocast has it; None where it is not a plain name."""
    for related in finding.related:
        with_ = document.find(related.location, ast.Call)
        if with_ is None:
            continue
        given = next((item for item in with_.keywords if item.arg == "enabled"), None)
        if given is None:
            return "" if finding.evidence.get("enabled") == "always" else None
        name = dotted(given.value)
        if isinstance(given.value, ast.Constant):
            return ""
        if not name or document.function(with_) is not function:
            return None
        return f", enabled={name}"
    return "" if finding.evidence.get("enabled") == "always" else None
