"""Fixes for autocast regions: move backward behind the region, leave models in float32."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from tclint.edits.codemod import Codemod, fixes, remove_argument
from tclint.edits.codemods.calls import pass_stated
from tclint.edits.program import SCOPES, Line, Statement, find_all, index_of, is_attribute, statements_of
from tclint.edits.statements import has_comment

_OF_THE_STEP = frozenset(
    ("backward", "scale", "step", "update", "unscale_", "zero_grad", "clip_grad_norm_", "clip_grad_value_")
)
"""Calls that compute nothing that autocast affects."""


@fixes("AMP006")
class BackwardBehindRegion(Codemod):
    """Dedent the tail of the autocast region from the backward call on."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None or not self.finding.related:
            return
        region = self.finding.related[0].location
        top: cst.CSTNode = call
        for outer in self.program.ancestors(call):
            if isinstance(outer, SCOPES):
                return
            if isinstance(outer, cst.With) and any(
                self.program.start(item.item) == (region.line, region.column - 1) for item in outer.items
            ):
                break
            if isinstance(outer, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                top = outer
        else:
            return
        block = statements_of(outer.body)
        first = index_of(block, top)
        tail = block[first:]
        if len(outer.items) != 1 or not all(map(_belongs_to_step, tail)) or not self.dedent(outer, first):
            return
        if first == 0:
            self.orphan_imports_of(outer.items[0])
        self.safety = "unsafe" if any(isinstance(item, cst.If) for item in tail) else "safe"


def _belongs_to_step(statement: Statement) -> bool:
    """Whether a statement is a backward pass or follows one, and computes nothing that autocast affects."""
    if isinstance(statement, cst.If):
        orelse = statement.orelse
        others = statements_of(orelse.body) if isinstance(orelse, cst.Else) else [orelse] if orelse else []
        return not any(call.args for call in find_all(statement.test, cst.Call)) and all(
            map(_belongs_to_step, (*statements_of(statement.body), *others))
        )
    if isinstance(statement, cst.Pass):
        return True
    if not isinstance(statement, cst.Expr) or not isinstance(statement.value, cst.Call):
        return False
    # The loss must not be computed in the statement, as in `(model(x) - y).mean().backward()`.
    return _called(statement.value) in _OF_THE_STEP and all(
        _called(call) in _OF_THE_STEP
        or (isinstance(call.func, cst.Attribute) and _called(call) in ("parameters", "sum"))
        for call in find_all(statement.value, cst.Call)
    )


def _called(call: cst.Call) -> str:
    """The last name of a call's function."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return name.value if isinstance(name, cst.Name) else ""


@fixes("AMP016")
class ChoosePrecision(Codemod):
    """Pass the argument of a framework that chooses mixed precision, or put what computes the losses of the
    program's own loops under autocast."""

    def plan(self) -> None:
        if pass_stated(self, self.find(cst.Call)) or self.program.torch is None:
            return
        quote, torch = self.program.quote, self.program.torch
        for lines in self._regions():
            self.indent(lines, f"{torch}.autocast({quote}cuda{quote}, dtype={torch}.bfloat16)")

    def _regions(self) -> list[Sequence[Line]]:
        """The statements for each region: in the block of a backward pass, from the first that runs a network
        to the last before it that computes its loss; none if that is not possible for all."""
        program = self.program
        backwards, forwards, losses = map(self.lines, ("backward", "forward", "loss"))
        first: dict[Line, int] = {}
        last: dict[Line, int] = {}
        for line in (*forwards, *losses):
            outer, backward = self._goes_before(line, backwards)
            if backward is None or (outer is backward and line in forwards):
                return []
            at = program.index(outer)
            if line in forwards:
                first[backward] = min(at, first.get(backward, at))
            if outer is not backward:
                last[backward] = max(at, last.get(backward, at))
        regions = [program.body(end)[at : last[end] + 1] for end, at in first.items()]
        inside = {line for region in regions for line in region}
        return regions if all(inside.isdisjoint(program.ancestors(end)) for end in backwards) else []

    def _goes_before(self, line: Line, backwards: list[Line]) -> tuple[Line, Line | None]:
        """The next backward pass behind a statement, and the statement of its block that is or holds the
        other."""
        program = self.program
        for outer in (line, *program.ancestors(line)):
            if isinstance(outer, Line):
                block = [item for item in backwards if program.parent(item) is program.parent(outer)]
                behind = [item for item in block if program.index(item) >= program.index(outer)]
                if behind:
                    return outer, min(behind, key=program.index)
        return line, None


@fixes("AMP009")
class KeepInFloat32(Codemod):
    """Remove `.half()` or the dtype of `.to(...)`, since autocast casts where that is safe."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None or not isinstance(call.func, cst.Attribute):
            return
        if call.func.attr.value == "to":
            dtypes = [item for item in call.args if is_attribute(item.value, "float16", "half", "bfloat16")]
            if len(dtypes) != 1:
                return
            if len(call.args) > 1:
                if not has_comment(dtypes[0]):
                    self.change(call, lambda call: remove_argument(call, dtypes[0]))
                return
        elif call.func.attr.value not in ("half", "bfloat16") or call.args:
            return
        statement = self.program.statement(call)
        if isinstance(statement, cst.Expr) and statement.value is call:
            self.remove(statement)
        elif not any(map(has_comment, (call.func.dot, *call.args))):
            self.change(call, _receiver)


def _receiver(call: cst.Call) -> cst.BaseExpression:
    """The object whose method is called, with the parentheses of the call."""
    method = cst.ensure_type(call.func, cst.Attribute)
    line, rpar = method.dot.whitespace_before, list(call.rpar)
    behind = rpar[0].whitespace_before if rpar else None
    if isinstance(line, cst.ParenthesizedWhitespace) and isinstance(behind, cst.ParenthesizedWhitespace):
        # The method has a line of its own, and its comment gets one too.
        left = cst.EmptyLine(line.indent, line.last_line, behind.first_line.comment)
        rpar[0] = rpar[0].with_changes(
            whitespace_before=behind.with_changes(
                first_line=cst.TrailingWhitespace(),
                empty_lines=[left, *behind.empty_lines] if left.comment else behind.empty_lines,
            )
        )
    value = method.value
    return value.with_changes(lpar=[*call.lpar, *value.lpar], rpar=[*value.rpar, *rpar])
