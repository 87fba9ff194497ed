"""Fixes of the order of a scaled step: unscale before clipping, step through the scaler, update."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tclint.core.finding import Finding
from tclint.edits.codemod import Proposal, codemod, safe, unsafe
from tclint.edits.document import Change, Document
from tclint.edits.imports import dotted
from tclint.edits.statements import (
    indentation,
    insert_after,
    insert_before,
    is_first_on_line,
    remove,
    with_comment,
)

_CLIPS = frozenset(("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"))
_CUTS = frozenset(("clamp_", "clip_", "clamp_min_", "clamp_max_", "clamp", "clip"))
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Use(NamedTuple):
    """`receiver.method(argument, ...)`, with a plain dotted receiver."""

    call: ast.Call
    receiver: str
    argument: str
    """The first argument where that is a dotted name; ''."""


def uses(document: Document, function: ast.AST, method: str) -> Iterator[Use]:
    """Calls of a method in a function's own code, in the order of the text."""
    body = getattr(function, "body", [])
    for statement in body if isinstance(body, list) else [body]:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in document.walk(statement, into_functions=False):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == method
            ):
                receiver = dotted(node.func.value)
                if receiver:
                    yield Use(node, receiver, dotted(node.args[0]) if node.args else "")


def _scaler_step(document: Document, function: ast.AST, finding: Finding) -> Use | None:
    """The scaler's step that the finding names."""
    line, text = finding.evidence.get("step_line"), finding.evidence.get("step")
    found = [
        use
        for use in uses(document, function, "step")
        if use.argument
        and (
            use.call.lineno == line
            if line is not None
            else use.call.lineno > finding.location.line and document.source(use.call) == text
        )
    ]
    return found[0] if len(found) == 1 else None


def _steps_of(document: Document, function: ast.AST, scaler: str) -> list[Use]:
    return [use for use in uses(document, function, "step") if use.receiver == scaler and use.argument]


@codemod("AMP020")
def unscale_before_reading(document: Document, finding: Finding) -> Proposal | None:
    """Insert `scaler.unscale_(optimizer)` before gradients are looked at."""
    proposal = unscale_first(document, finding)
    return proposal._replace(safety="unsafe") if proposal is not None else None


@codemod("AMP003")
def unscale_first(document: Document, finding: Finding) -> Proposal | None:
    """Insert `scaler.unscale_(optimizer)` before the first look at the gradients of a step."""
    node = document.find(finding.location, ast.Call) or document.find(finding.location, ast.stmt)
    if node is None:
        return None
    function = document.function(node)
    step = _scaler_step(document, function, finding)
    statement = document.statement(node)
    step_statement = document.statement(step.call) if step is not None else None
    if step is None or statement is None or step_statement is None:
        return None
    code = f"{step.receiver}.unscale_({step.argument})"
    block = document.block(step_statement)
    path = _path_into(document, statement, block)
    if not path:
        return _under_same_test(document, statement, step_statement, code)
    # A loop over parameters clips one after the other: unscale once, before it.
    loops = [outer for outer in path if isinstance(outer, _LOOPS)]
    target = loops[0] if loops else path[-1]
    top = path[0]
    first = _first_clip(document, block, top)
    if first is not top or clips_in(document, top) > 1:
        target = first
    if _unscaled_already(document, function, step, target):
        return None
    misplaced = _misplaced(document, function, step, block, target, step_statement)
    if misplaced is None:
        return None
    moved = len(misplaced) == 1 and is_first_on_line(document, target)
    if moved:
        code = with_comment(document, misplaced[0])
    optimizers = {use.argument for use in _steps_of(document, function, step.receiver)}
    nested = any(isinstance(outer, (*_LOOPS, ast.Try, ast.With)) for outer in path[:-1])
    changes = [
        insert_before(document, target, code),
        *(remove(document, item, with_comments=moved) for item in misplaced),
    ]
    return safe(changes) if len(optimizers) == 1 and not nested else unsafe(changes)


def _unscaled_already(document: Document, function: ast.AST, step: Use, target: ast.stmt) -> bool:
    """`unscale_` has run for this optimizer since the last update: once more would raise."""
    end = document.start(target)
    updates = [document.start(use.call) for use in uses(document, function, "update")]
    since = max((start for start in updates if start < end), default=-1)
    return any(
        since < document.start(use.call) < end and _runs_before(document, use.call, target)
        for use in uses(document, function, "unscale_")
        if (use.receiver, use.argument) == (step.receiver, step.argument)
    )


def _misplaced(
    document: Document,
    function: ast.AST,
    step: Use,
    block: list[ast.stmt],
    target: ast.stmt,
    step_statement: ast.stmt,
) -> list[ast.stmt] | None:
    """Statements that unscale too late; None where one is not a statement of the block."""
    found: list[ast.stmt] = []
    for use in uses(document, function, "unscale_"):
        if (use.receiver, use.argument) != (step.receiver, step.argument):
            continue
        start = document.start(use.call)
        if not document.start(target) <= start < document.start(step_statement):
            continue
        statement = document.statement(use.call)
        if not isinstance(statement, ast.Expr) or not any(item is statement for item in block):
            return None
        found.append(statement)
    return found


def _under_same_test(document: Document, clip: ast.stmt, step: ast.stmt, code: str) -> Proposal | None:
    """The step stands under `if scaler is not None:`, the clipping does not: unscale under the same test."""
    guard = document.parent(step)
    if not isinstance(guard, ast.If) or not any(step is item for item in guard.body):
        return None
    block = document.block(guard)
    path = _path_into(document, clip, block)
    test = guard.test.left if isinstance(guard.test, ast.Compare) else guard.test
    plain = bool(dotted(test)) and (
        not isinstance(guard.test, ast.Compare)
        or (len(guard.test.comparators) == 1 and isinstance(guard.test.comparators[0], ast.Constant))
    )
    if len(path) != 1 or not plain or document.start(clip) > document.start(guard):
        return None
    if not all(is_first_on_line(document, item) for item in (clip, guard, step)):
        return None
    outer = indentation(document, clip)
    inner = indentation(document, step)
    if not inner.startswith(outer):
        return None
    lines = f"if {document.source(guard.test)}:{document.newline}{inner}{code}"
    return unsafe(insert_before(document, _first_clip(document, block, clip), lines))


def _path_into(document: Document, statement: ast.stmt, block: list[ast.stmt]) -> list[ast.stmt]:
    """Statements from the one of the block down to `statement`; empty where it is not in the block."""
    path = [statement]
    for outer in document.ancestors(statement):
        if any(path[0] is item for item in block):
            return path
        if isinstance(outer, ast.stmt):
            path.insert(0, outer)
    return path if any(path[0] is item for item in block) else []


def clips_in(document: Document, statement: ast.AST) -> int:
    """How many calls below a node clip gradients."""
    return sum(_is_clip(node) for node in document.walk(statement))


def _is_clip(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func)
    last = name.rpartition(".")[2]
    return last in _CLIPS or (last in _CUTS and ".grad" in name)


def _first_clip(document: Document, block: list[ast.stmt], top: ast.stmt) -> ast.stmt:
    """The first statement of the block that clips gradients of the same step."""
    first = top
    position = next(index for index, item in enumerate(block) if item is top)
    for statement in reversed(block[:position]):
        if any(
            isinstance(node, ast.Attribute) and node.attr in ("backward", "step", "update")
            for node in document.walk(statement)
        ):
            break
        if clips_in(document, statement):
            first = statement
    return first


@codemod("AMP004")
def update_after_step(document: Document, finding: Finding) -> Proposal | None:
    """Insert `scaler.update()` behind the last step of the block."""
    call = document.find(finding.location, ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute) or not call.args:
        return None
    scaler, optimizer = dotted(call.func.value), dotted(call.args[0])
    statement = document.statement(call)
    function = document.function(call)
    # An update that runs too rarely has to be moved; where to is the author's choice.
    if (
        not scaler
        or statement is None
        or any(use.receiver == scaler for use in uses(document, function, "update"))
    ):
        return None
    if any(optimizer in _targets(loop) for loop in document.ancestors(call) if isinstance(loop, ast.For)):
        return None
    block = document.block(statement)
    steps = _steps_of(document, function, scaler)
    statements = [document.statement(use.call) for use in steps]
    here = [item for item in block if any(item is other for other in statements)]
    change = insert_after(document, here[-1], f"{scaler}.update()")
    return safe(change) if len(here) == len(steps) else unsafe(change)


def _targets(loop: ast.For) -> set[str]:
    return {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


@codemod("AMP005")
def step_through_scaler(document: Document, finding: Finding) -> Proposal | None:
    """Replace `optimizer.step()` by `scaler.step(optimizer)`, with one update behind the last step."""
    call = document.find(finding.location, ast.Call)
    statement = document.statement(call) if call is not None else None
    if call is None or not isinstance(statement, ast.Expr) or statement.value is not call:
        return None
    optimizer = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    function = document.function(call)
    scalers = {use.receiver for use in uses(document, function, "scale")}
    if not optimizer or call.args or call.keywords or len(scalers) != 1:
        return None
    scaler = scalers.pop()
    if any(use.argument == optimizer for use in _steps_of(document, function, scaler)):
        # It is stepped twice; a second step through the scaler before the update would raise.
        return None
    changes = [Change(document.start(call), document.end(call), f"{scaler}.step({optimizer})")]
    updates = [use for use in uses(document, function, "update") if use.receiver == scaler]
    if any(document.start(use.call) < document.start(call) for use in updates):
        return None
    # Where only one branch scales, the other still needs the plain step.
    if not all(_runs_before(document, use.call, call) for use in uses(document, function, "scale")):
        return None
    block = document.block(statement)
    if any(optimizer in _targets(loop) for loop in document.ancestors(call) if isinstance(loop, ast.For)):
        return None
    if not updates:
        last = _last_step(block, statement, scaler)
        changes.append(insert_after(document, last, f"{scaler}.update()"))
    return safe(changes)


def _runs_before(document: Document, earlier: ast.AST, later: ast.AST) -> bool:
    """Whether no test, handler or inner loop stands around the earlier one alone."""
    around_later = {id(outer) for outer in document.ancestors(later)}
    return not any(
        isinstance(outer, ast.If | ast.IfExp | ast.Try | ast.Match) and id(outer) not in around_later
        for outer in document.ancestors(earlier)
    )


def _last_step(block: list[ast.stmt], statement: ast.stmt, scaler: str) -> ast.stmt:
    """The last statement of the block that is a step of an optimizer."""
    last = statement
    position = next(index for index, item in enumerate(block) if item is statement)
    for item in block[position + 1 :]:
        value = item.value if isinstance(item, ast.Expr) else None
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            continue
        name = dotted(value.func.value)
        if value.func.attr == "step" and (name == scaler or "opt" in name.lower()):
            last = item
    return last


@codemod("AMP013")
def scale_the_loss(document: Document, finding: Finding) -> Proposal | None:
    """Write `scaler.scale(loss).backward()`, for every loss of the step."""
    call = document.find(finding.location, ast.Call)
    if call is None:
        return None
    function = document.function(call)
    step = _scaler_step(document, function, finding)
    if step is None:
        return None
    plain = [
        node
        for node in document.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
        and document.function(node) is function
    ]
    end = document.start(step.call)
    earlier = [
        document.start(use.call)
        for use in uses(document, function, "step")
        if use.argument and document.start(use.call) < document.start(call)
    ]
    start = max(earlier, default=-1)
    changes: list[Change] = []
    for backward in plain:
        if not start < document.start(backward) < end:
            continue
        if backward.args or any(item.arg in (None, "gradient") for item in backward.keywords):
            return None
        changes += scaled(document, backward, step.receiver)
        assert isinstance(backward.func, ast.Attribute)
        changes += _discarded(document, function, step.receiver, dotted(backward.func.value))
    return safe(changes)


def _discarded(document: Document, function: ast.AST, scaler: str, loss: str) -> list[Change]:
    """Takes out `scaler.scale(loss)` as a statement: it scales nothing."""
    found = []
    for use in uses(document, function, "scale"):
        statement = document.statement(use.call)
        if (
            isinstance(statement, ast.Expr)
            and statement.value is use.call
            and (use.receiver, use.argument) == (scaler, loss)
        ):
            found.append(remove(document, statement))
    return found


def scaled(document: Document, call: ast.Call, scaler: str) -> list[Change]:
    """`scaler.scale(...)` around what a method is called on."""
    assert isinstance(call.func, ast.Attribute)
    start, end = document.start(call), document.end(call.func.value)
    dot = end
    while document.text[dot] != ".":
        dot += 1
    if start < document.start(call.func.value):  # parentheses of its own
        return [Change(start, start, f"{scaler}.scale")]
    return [Change(start, start, f"{scaler}.scale("), Change(end, end, ")")]


@codemod("AMP008")
def disable_scaler(document: Document, finding: Finding) -> Proposal | None:
    """Make the scaler with enabled=False: its calls then do nothing."""
    from tclint.edits.arguments import append_argument, keyword

    places = [finding.location, *(related.location for related in finding.related)]
    for place in places:
        call = document.find(place, ast.Call)
        if call is None or not dotted(call.func).endswith("GradScaler"):
            continue
        given = keyword(call, "enabled")
        if given is not None:
            return unsafe(Change(document.start(given.value), document.end(given.value), "False"))
        if any(item.arg is None for item in call.keywords) or len(call.args) > 4:
            return None
        return unsafe(
            append_argument(document, call, "enabled=False"),
            "Make the scaler with enabled=False, or take it out: bfloat16 needs no loss scaling.",
        )
    return None
