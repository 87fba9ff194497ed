"""What a condition on traced data guards: work, or a way past it; so that a guess shows the work.

`if not mask.any(): continue` leaves the rest of the loop out, `if error < limit: break` all further rounds,
`if mask.any(): x[mask] = expert(x[mask])` has a layer that would not run, and `while (left > 0).any():` may
never end. The source of the line tells, where it can be read.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

from tclint.tracing.values.layers import callees
from tclint.tracing.values.user_code import tree_of


class Guard(NamedTuple):
    """The condition of an `if`, a `while`, an `assert` or a choice, and what its parts' truth leads to."""

    first_line: int
    last_line: int
    is_negated: bool
    """The data is asked under a `not`."""
    is_loop: bool
    """Whether the condition belongs to a `while`, where true runs another round."""
    leaves: str
    """How it leaves: 'continue', 'break' (of a `for`), 'return', 'raise', 'assert'; '' where work is done."""

    body_calls: tuple[ast.expr, ...] = ()
    """What is called where the condition holds, of an `if` that does not leave."""
    else_calls: tuple[ast.expr, ...] = ()
    may_wait: bool = False
    """It stands in a `while`, which may end by what is done where the condition holds."""

    @property
    def working_value(self) -> bool:
        """The answer with which the work is done: the loop's body, or what an early exit would leave out."""
        return (self.is_loop or self.leaves == "assert") != self.is_negated


def guard_at(frame: FrameType) -> Guard | None:
    """The condition that a frame is at, where what it guards is clear."""
    return _conditions_at(frame.f_code.co_filename, frame.f_lineno).guard


def extremum_at(frame: FrameType) -> str:
    """'max' or 'min' where a frame is inside a call of that builtin with several values; else ''."""
    code = frame.f_code
    if not dis.opname[code.co_code[frame.f_lasti]].startswith(("CALL", "PRECALL")):
        return ""
    return _conditions_at(code.co_filename, frame.f_lineno).extremum


class _Conditions(NamedTuple):
    """What a line tells."""

    guard: Guard | None = None
    extremum: str = ""


@lru_cache(maxsize=256)
def _conditions_at(path: str, number: int) -> _Conditions:
    nodes = list(_nodes_at(tree_of(path), number))
    guards = [guard for guard in (_guard(*found) for found in nodes) if guard is not None]
    guards = [guard for guard in guards if guard.first_line <= number <= guard.last_line]
    names = {name for node, _ in nodes if (name := _extremum(node))}
    return _Conditions(guards[0] if len(guards) == 1 else None, names.pop() if len(names) == 1 else "")


def _nodes_at(node: ast.AST, number: int, loop: str = "") -> Iterator[tuple[ast.AST, str]]:
    """The nodes below one that a line is part of, each with the innermost loop of its function.

    Args:
        loop: of the node itself: 'for' or 'while', in whose body it is; else ''.
    """
    for name, value in ast.iter_fields(node):
        inner = _loop_of(node, loop) if name == "body" else loop
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and _is_at(child, number):
                yield child, inner
                yield from _nodes_at(child, number, inner)


def _loop_of(node: ast.AST, loop: str) -> str:
    """The innermost loop around the body of a node that is in `loop` itself."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return "for"
    if isinstance(node, ast.While):
        return "while"
    return "" if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else loop


def _is_at(node: ast.AST, number: int) -> bool:
    """Whether a line is, or may be, part of a node: some, such as arguments, do not know their lines."""
    if not isinstance(node, (ast.stmt, ast.expr, ast.excepthandler)):
        return True
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min(part.lineno for part in (node, *decorators))
    return first <= number <= (node.end_lineno or node.lineno)


def _extremum(node: ast.AST) -> str:
    """'max' or 'min' of a call of it with several values; else ''."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        return node.func.id if node.func.id in ("max", "min") else ""
    return ""


def _guard(node: ast.AST, loop: str) -> Guard | None:
    """That of an `if`, a `while`, an `assert` or a `body if test else other`."""
    if not isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
        return None
    test = node.test
    negated = _is_negated(test)
    if negated is None:
        return None
    lines = test.lineno, test.end_lineno or test.lineno
    if isinstance(node, ast.While):
        return Guard(*lines, negated, True, "")
    if isinstance(node, ast.Assert):
        return Guard(*lines, negated, False, "assert")
    if isinstance(node, ast.IfExp):
        return Guard(*lines, negated, False, "", callees([node.body]), callees([node.orelse]))
    if leaves := _way_out(node, loop):
        return Guard(*lines, negated, False, leaves)
    return Guard(
        *lines, negated, False, "", callees(node.body), callees(node.orelse), may_wait=loop == "while"
    )


def _is_negated(test: ast.expr) -> bool | None:
    """Whether the data is asked under a `not`; None where that is not clear, or several parts may ask.

    Parts without a call (`steps < 8`, `self.training`, `x.shape[0]`) ask for nothing where another has one.
    """
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    inner = test.operand if isinstance(test, ast.UnaryOp) and negated else test
    if isinstance(inner, ast.BoolOp):
        asking = [part for part in inner.values if any(isinstance(node, ast.Call) for node in ast.walk(part))]
        below = _is_negated(asking[0]) if len(asking) == 1 else None
        return None if below is None else below != negated
    if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not):
        return None
    return None if _asks_for_a_constant(inner) else negated


def _asks_for_a_constant(part: ast.expr) -> bool:
    """`x.any().item() == 0` asks for the opposite."""
    return (
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], (ast.Eq, ast.NotEq, ast.Is, ast.IsNot))
        and any(isinstance(side, ast.Constant) for side in part.comparators)
    )


def _way_out(node: ast.If, loop: str) -> str:
    if node.orelse:
        return ""
    last = node.body[-1]
    if isinstance(last, ast.Continue):
        return "continue"
    if isinstance(last, ast.Break):  # other loops may have no other end
        return "break" if loop == "for" else ""
    if isinstance(last, ast.Raise):
        return "raise"
    return "return" if isinstance(last, ast.Return) else ""
