"""What a condition on traced data guards: work, or a way past it; so that a guess shows the work.

`if not mask.any(): continue` leaves the rest of the loop out, `if error < limit: break` all further rounds,
`if mask.any(): x[mask] = expert(x[mask])` has a layer that would not run, and `while (left > 0).any():` may
never end. The source of the line tells, where it can be read.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from tclint.tracing.values.called_layers import callees
from tclint.tracing.values.statements import Statement, parsed, statement_at


class Guard(NamedTuple):
    """The condition of an `if`, a `while`, an `assert` or a choice, and what its parts' truth leads to."""

    first_line: int
    last_line: int
    is_negated: bool
    """The data is asked under a `not`."""
    is_loop: bool
    """Of a `while`: true runs another round."""
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
    return _conditions_at(frame.f_code, frame.f_lineno).guard


def extremum_at(frame: FrameType) -> str:
    """'max' or 'min' where a frame is inside a call of that builtin with several values; else ''."""
    code = frame.f_code
    if not dis.opname[code.co_code[frame.f_lasti]].startswith(("CALL", "PRECALL")):
        return ""
    return _conditions_at(code, frame.f_lineno).extremum


class _Conditions(NamedTuple):
    """What a line tells."""

    guard: Guard | None = None
    extremum: str = ""


_known: dict[tuple[str, int, bool], _Conditions] = {}
_MAX_KNOWN = 256


def _conditions_at(code: CodeType, number: int) -> _Conditions:
    key = code.co_filename, number, code.co_name.startswith("<")
    known = _known.get(key)
    if known is None:
        statement = statement_at(code, number)
        known = _Conditions() if statement is None else _conditions_in(statement, number)
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[key] = known
    return known


def _conditions_in(statement: Statement, number: int) -> _Conditions:
    guards = [
        guard
        for guard in (*_guard(statement), *_checks(statement), *_choices(statement))
        if guard.first_line <= number <= guard.last_line
    ]
    names = {name for first, last, name in _extrema(statement) if first <= number <= last}
    return _Conditions(guards[0] if len(guards) == 1 else None, names.pop() if len(names) == 1 else "")


def _extrema(statement: Statement) -> Iterator[tuple[int, int, str]]:
    """First line, last line and name of each call of max or min with several values."""
    for node in _nodes(statement):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("max", "min")
            and len(node.args) > 1
        ):
            yield *_lines_of(node), node.func.id


def _lines_of(node: ast.expr) -> tuple[int, int]:
    """The first and the last."""
    return node.lineno, node.end_lineno or node.lineno


def _nodes(statement: Statement) -> Iterator[ast.AST]:
    for part in statement.tree:
        yield from ast.walk(part)


def _guard(statement: Statement) -> Iterator[Guard]:
    """That of an `if` or a `while`."""
    node = statement.tree[0]
    if not isinstance(node, (ast.If, ast.While)):
        return
    negated = _is_negated(node.test)
    if negated is None:
        return
    lines = _lines_of(node.test)
    if isinstance(node, ast.While):
        yield Guard(*lines, negated, True, "")
    elif leaves := _way_out(statement):
        yield Guard(*lines, negated, False, leaves)
    else:
        whole = parsed(statement.chain, statement.first_line)[0]
        assert isinstance(whole, ast.If)
        calls = callees(whole.body), callees(whole.orelse)
        yield Guard(*lines, negated, False, "", *calls, statement.loop == "while")


def _checks(statement: Statement) -> Iterator[Guard]:
    """Every `assert`, also behind a semicolon or a colon."""
    for node in _nodes(statement):
        if isinstance(node, ast.Assert) and (negated := _is_negated(node.test)) is not None:
            yield Guard(*_lines_of(node.test), negated, False, "assert")


def _choices(statement: Statement) -> Iterator[Guard]:
    """Every `body if test else other`."""
    for node in _nodes(statement):
        if isinstance(node, ast.IfExp) and (negated := _is_negated(node.test)) is not None:
            calls = callees([node.body]), callees([node.orelse])
            yield Guard(*_lines_of(node.test), negated, False, "", *calls)


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


def _way_out(statement: Statement) -> str:
    if statement.has_else:
        return ""
    last = statement.last
    if isinstance(last, ast.Continue):
        return "continue"
    if isinstance(last, ast.Break):  # other loops may have no other end
        return "break" if statement.loop == "for" else ""
    if isinstance(last, ast.Raise):
        return "raise"
    return "return" if isinstance(last, ast.Return) else ""
