"""What a condition on traced data guards: work, or a way past it; so that a guess shows the work.

`if not mask.any(): continue` leaves the rest of the loop out, `if error < limit: break` all further rounds,
`if mask.any(): x[mask] = expert(x[mask])` has a layer that would not run, and `while (left > 0).any():` may
never end. The source of the line tells, where it can be read.
"""

from __future__ import annotations

import ast
import dis
import itertools
import linecache
import os
import sys
import tokenize
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from tclint.tracing.called_layers import callees

_MAX_LINES = 20_000
_WHOLE_FILE = 0
"""In the place of a function's first line."""
_Loop = ast.For | ast.AsyncFor | ast.While


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
    guards = _conditions_around(frame.f_code).guards
    found = [guard for guard in guards if guard.first_line <= frame.f_lineno <= guard.last_line]
    return found[0] if len(found) == 1 else None


def extremum_at(frame: FrameType) -> str:
    """'max' or 'min' where a frame is inside a call of that builtin with several values; else ''."""
    code = frame.f_code
    if not dis.opname[code.co_code[frame.f_lasti]].startswith(("CALL", "PRECALL")):
        return ""
    calls = _conditions_around(code).extrema
    names = {name for first, last, name in calls if first <= frame.f_lineno <= last}
    return names.pop() if len(names) == 1 else ""


class _Conditions(NamedTuple):
    """What a source tells."""

    guards: tuple[Guard, ...] = ()
    extrema: tuple[tuple[int, int, str], ...] = ()
    """First line, last line and name of each call of max or min with several values."""


_known: dict[tuple[str, int], _Conditions] = {}
_MAX_KNOWN = 256


def _conditions_around(code: CodeType) -> _Conditions:
    # Lambdas and comprehensions stand in lines of the function around them.
    first_line = _WHOLE_FILE if code.co_name.startswith("<") else code.co_firstlineno
    known = _known.get((code.co_filename, first_line))
    if known is None:
        # Not asked for what is known: all of a function's instructions are looked at.
        known = _conditions_in(code.co_filename, first_line, _last_line(code))
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        _known[code.co_filename, first_line] = known
    return known


def _last_line(code: CodeType) -> int:
    """Of the instructions of the code and of the functions in it."""
    if sys.version_info >= (3, 11):
        lines = [end for _, end, _, _ in code.co_positions() if end is not None]
    else:
        lines = [line for _, _, line in code.co_lines() if line is not None]
    inner = [_last_line(value) for value in code.co_consts if isinstance(value, CodeType)]
    return max([code.co_firstlineno, *lines, *inner])


def _conditions_in(path: str, first_line: int, last_line: int) -> _Conditions:
    """Of a function in these lines, counted from 1, or of a whole file."""
    try:
        lines = _lines(path, first_line, last_line)
        if not lines or len(lines) > _MAX_LINES:
            return _Conditions()
        tree = _parsed(lines)
        ast.increment_lineno(tree, max(first_line, 1) - 1)
        return _Conditions((*_guards(tree, None), *_choices(tree)), tuple(_extrema(tree)))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return _Conditions() if first_line == _WHOLE_FILE else _conditions_in(path, _WHOLE_FILE, 0)


def _lines(path: str, first_line: int, last_line: int) -> list[str]:
    if not os.path.isfile(path):  # a notebook's cell
        return _function(iter(linecache.getlines(path)), first_line, last_line)
    # A module's source can be more than all else of a trace.
    with tokenize.open(path) as stream:
        return _function(stream, first_line, last_line)


def _function(source: Iterator[str], first_line: int, last_line: int) -> list[str]:
    """The lines up to the last that has instructions, and those of its block that have none."""
    if first_line == _WHOLE_FILE:
        return list(source)
    lines = list(itertools.islice(source, first_line - 1, last_line))
    outside = _indentation(lines[0]) if lines else 0
    for line in source:
        if line.strip() and not line.lstrip().startswith("#") and _indentation(line) <= outside:
            break
        lines.append(line)
    return lines


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parsed(lines: list[str]) -> ast.Module:
    if lines[0][0] not in " \t":
        return ast.parse("".join(lines))
    tree = ast.parse("if True:\n" + "".join(lines))
    ast.increment_lineno(tree, -1)
    block = tree.body[0]
    assert isinstance(block, ast.If)
    return ast.Module(block.body, [])


def _extrema(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("max", "min")
            and len(node.args) > 1
        ):
            yield node.lineno, node.end_lineno or node.lineno, node.func.id


def _guards(node: ast.AST, loop: _Loop | None) -> Iterator[Guard]:
    """Every `if`, `while` and `assert` below a node that stands in a loop, with what it guards."""
    if isinstance(node, ast.Assert):
        negated = _is_negated(node.test)
        if negated is not None:
            yield Guard(node.test.lineno, node.test.end_lineno or node.test.lineno, negated, False, "assert")
    if isinstance(node, (ast.If, ast.While)):
        negated = _is_negated(node.test)
        last = node.test.end_lineno or node.test.lineno
        is_loop = isinstance(node, ast.While)
        leaves = _way_out(node, loop) if isinstance(node, ast.If) else ""
        if negated is not None and (is_loop or leaves):
            yield Guard(node.test.lineno, last, negated, is_loop, leaves)
        elif negated is not None:
            calls = callees(node.body), callees(node.orelse)
            yield Guard(node.test.lineno, last, negated, False, "", *calls, isinstance(loop, ast.While))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _guards(child, None)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            inner = node if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else None
            inside = inner is not None and child in inner.body
            yield from _guards(child, inner if inside else loop)


def _choices(tree: ast.Module) -> Iterator[Guard]:
    """Every `body if test else other`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp) and (negated := _is_negated(node.test)) is not None:
            last = node.test.end_lineno or node.test.lineno
            calls = callees([node.body]), callees([node.orelse])
            yield Guard(node.test.lineno, last, negated, False, "", *calls)


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


def _way_out(node: ast.If, loop: _Loop | None) -> str:
    if node.orelse:
        return ""
    last = node.body[-1]
    if isinstance(last, ast.Continue):
        return "continue"
    if isinstance(last, ast.Break):  # other loops may have no other end
        return "break" if isinstance(loop, (ast.For, ast.AsyncFor)) else ""
    if isinstance(last, ast.Raise):
        return "raise"
    return "return" if isinstance(last, ast.Return) else ""
