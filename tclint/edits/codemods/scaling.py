"""Fixes for the order of a scaled step: unscale before clipping, step through the scaler, update."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from tclint.edits.codemod import Codemod, append_argument, fixes, keyword
from tclint.edits.program import LOOPS, Statement, find_all, index_of, is_attribute, is_constant, names_in
from tclint.source.syntax.expressions import dotted_name

_CLIPS = frozenset(("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"))
_CUTS = frozenset(("clamp_", "clip_", "clamp_min_", "clamp_max_", "clamp", "clip"))


class MethodCall(NamedTuple):
    """A call `receiver.method(argument, ...)` with a plain dotted receiver."""

    call: cst.Call
    receiver: str
    argument: str
    """The first argument if it is a dotted name, else ''."""


class ScalingCodemod(Codemod):
    """The base of codemods for gradient scalers, with questions about a training step."""

    def uses(self, function: cst.CSTNode, method: str) -> list[MethodCall]:
        """The calls of a method in a function's own code, in the order of the text."""
        found = []
        for call in self.program.every(cst.Call, function):
            if is_attribute(call.func, method):
                receiver = dotted_name(call.func.value)
                if receiver and self.program.function(call) is function:
                    argument = dotted_name(call.args[0].value) if call.args else ""
                    found.append(MethodCall(call, receiver, argument))
        return found

    def steps_of(self, function: cst.CSTNode, scaler: str) -> list[MethodCall]:
        return [use for use in self.uses(function, "step") if use.receiver == scaler and use.argument]

    def scaler_step(self, function: cst.CSTNode) -> MethodCall | None:
        """The scaler's step that the finding names."""
        line, text = self.finding.evidence.get("step_line"), self.finding.evidence.get("step")
        found = [
            use
            for use in self.uses(function, "step")
            if use.argument
            and (
                self.program.line_number(use.call) == line
                if line is not None
                else self.program.line_number(use.call) > self.finding.location.line
                and self.program.code(use.call) == text
            )
        ]
        return found[0] if len(found) == 1 else None

    def is_step(self, node: cst.CSTNode) -> bool:
        """Whether a node is an optimizer's step that the rule found."""
        line, column = self.program.start(node)
        steps = self.finding.evidence.get("steps")
        return isinstance(steps, list) and [line, column + 1] in steps

    def is_before(self, one: cst.CSTNode, other: cst.CSTNode) -> bool:
        return self.program.start(one) < self.program.start(other)

    def runs_before(self, earlier: cst.CSTNode, later: cst.CSTNode) -> bool:
        """Whether one node always runs before another: no test, handler or inner loop is around only the
        first."""
        around_later = set(self.program.ancestors(later))
        return not any(
            isinstance(outer, cst.If | cst.IfExp | cst.Try | cst.TryStar | cst.Match)
            and outer not in around_later
            for outer in self.program.ancestors(earlier)
        )

    def is_looped_over(self, call: cst.Call, optimizer: str) -> bool:
        """Whether a call is in a loop such as `for optimizer in optimizers:`."""
        return any(
            isinstance(loop, cst.For) and optimizer in names_in(loop.target)
            for loop in self.program.ancestors(call)
        )

    def scale(self, backward: cst.Call, scaler: str) -> None:
        """Put `scaler.scale(...)` around the loss of a backward call."""
        assert isinstance(backward.func, cst.Attribute)
        self.change(backward.func.value, lambda loss: _scaled(loss, scaler))


def _scaled(loss: cst.BaseExpression, scaler: str) -> cst.BaseExpression:
    scale = cst.ensure_type(cst.parse_expression(f"{scaler}.scale()"), cst.Call)
    if loss.lpar:  # its parentheses become the call's
        loss = loss.with_changes(lpar=loss.lpar[1:], rpar=loss.rpar[:-1])
    return scale.with_changes(args=[cst.Arg(loss)])


def clips_in(node: cst.CSTNode) -> int:
    """The number of calls below a node that clip gradients."""
    return sum(map(_is_clip, find_all(node, cst.Call)))


def _is_clip(call: cst.Call) -> bool:
    name = dotted_name(call.func)
    last = name.rpartition(".")[2]
    return last in _CLIPS or (last in _CUTS and ".grad" in name)


@fixes("AMP003")
class UnscaleFirst(ScalingCodemod):
    """Insert `scaler.unscale_(optimizer)` before the gradients of a step are first read."""

    def plan(self) -> None:
        statement = self.program.statement_at(self.finding.location)
        if statement is None:
            return
        function = self.program.function(statement)
        step = self.scaler_step(function)
        step_statement = self.program.statement(step.call) if step is not None else None
        if step is None or step_statement is None:
            return
        code = f"{step.receiver}.unscale_({step.argument})"
        block = self.program.block(step_statement)
        path = self._path_into(statement, block)
        if not path:
            self._under_same_test(statement, step_statement, code)
            return
        # A loop over parameters clips them one by one, so unscale once, before the loop.
        target = next((outer for outer in path if isinstance(outer, LOOPS)), path[-1])
        top = path[0]
        first = _first_clip(block, top)
        if first is not top or clips_in(top) > 1:
            target = first
        misplaced = self._misplaced(function, step, block, target, step_statement)
        if misplaced is None or self._is_unscaled(function, step, target):
            return
        optimizers = {use.argument for use in self.steps_of(function, step.receiver)}
        nested = any(isinstance(outer, (*LOOPS, cst.Try, cst.TryStar, cst.With)) for outer in path[:-1])
        self.safety = "safe" if len(optimizers) == 1 and not nested else "unsafe"
        if len(misplaced) == 1 and self.program.own_line(target) is not None:
            self.insert_before(target, self.move(misplaced[0]))
            return
        self.insert_before(target, code)
        for late in misplaced:
            self.remove(late)

    def _path_into(self, statement: Statement, block: list[Statement]) -> list[Statement]:
        """The nested statements from one of the block down to `statement`; empty if it is not in the
        block."""
        path: list[Statement] = []
        for outer in (statement, *self.program.ancestors(statement)):
            if isinstance(outer, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                path.insert(0, outer)
                if any(outer is item for item in block):
                    return path
        return []

    def _is_unscaled(self, function: cst.CSTNode, step: MethodCall, target: Statement) -> bool:
        """Whether `unscale_` has run for this optimizer since the last update; a second one would raise."""
        updates = [use.call for use in self.uses(function, "update") if self.is_before(use.call, target)]
        return any(
            self.is_before(use.call, target)
            and not any(self.is_before(use.call, update) for update in updates)
            and self.runs_before(use.call, target)
            for use in self.uses(function, "unscale_")
            if (use.receiver, use.argument) == (step.receiver, step.argument)
        )

    def _misplaced(
        self,
        function: cst.CSTNode,
        step: MethodCall,
        block: list[Statement],
        target: Statement,
        step_statement: Statement,
    ) -> list[cst.Expr] | None:
        """The statements that unscale too late; None if one is not a statement of the block."""
        found: list[cst.Expr] = []
        for use in self.uses(function, "unscale_"):
            late = not self.is_before(use.call, target) and self.is_before(use.call, step_statement)
            if not late or (use.receiver, use.argument) != (step.receiver, step.argument):
                continue
            statement = self.program.statement(use.call)
            if not isinstance(statement, cst.Expr) or not any(item is statement for item in block):
                return None
            found.append(statement)
        return found

    def _under_same_test(self, clip: Statement, step: Statement, code: str) -> None:
        """Unscale under the step's test, such as `if scaler is not None:`, if the clipping is not under
        it."""
        guard = self.program.enclosing(step)
        if not isinstance(guard, cst.If) or not isinstance(guard.body, cst.IndentedBlock):
            return
        block = self.program.block(guard)
        match guard.test:
            case cst.Comparison(left=test, comparisons=[cst.ComparisonTarget(comparator=other)]):
                if not is_constant(other):
                    return
            case test:
                pass
        if not dotted_name(test):
            return
        if len(self._path_into(clip, block)) != 1 or not self.is_before(clip, guard):
            return
        if any(self.program.own_line(item) is None for item in (clip, step)):
            return
        self.insert_before(
            _first_clip(block, clip),
            f"if {self.program.code(guard.test)}:\n{self.program.module.default_indent}{code}",
        )


def _first_clip(block: list[Statement], top: Statement) -> Statement:
    """The first statement of the block that clips gradients of the same step."""
    first = top
    for statement in reversed(block[: index_of(block, top)]):
        attributes = find_all(statement, cst.Attribute)
        if any(is_attribute(node, "backward", "step", "update") for node in attributes):
            break
        if clips_in(statement):
            first = statement
    return first


@fixes("AMP020")
class UnscaleBeforeReading(UnscaleFirst):
    """Insert `scaler.unscale_(optimizer)` before gradients are read."""

    def plan(self) -> None:
        super().plan()
        self.safety = "unsafe"


@fixes("AMP004")
class UpdateAfterStep(ScalingCodemod):
    """Insert `scaler.update()` after the last step of the block."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None or not isinstance(call.func, cst.Attribute) or not call.args:
            return
        scaler, optimizer = dotted_name(call.func.value), dotted_name(call.args[0].value)
        statement = self.program.statement(call)
        function = self.program.function(call)
        if not scaler or statement is None or self.is_looped_over(call, optimizer):
            return
        # An update that runs too rarely has to be moved to a place that only the author can choose.
        if any(use.receiver == scaler for use in self.uses(function, "update")):
            return
        steps = [self.program.statement(use.call) for use in self.steps_of(function, scaler)]
        here = [item for item in self.program.block(statement) if item in steps]
        self.insert_after(here[-1], f"{scaler}.update()")
        self.safety = "safe" if len(here) == len(steps) else "unsafe"


@fixes("AMP005")
class StepThroughScaler(ScalingCodemod):
    """Replace `optimizer.step()` by `scaler.step(optimizer)`, with one update after the last step."""

    safety = "safe"

    def plan(self) -> None:
        call = self.find(cst.Call)
        statement = self.program.statement(call) if call is not None else None
        if call is None or not isinstance(statement, cst.Expr) or statement.value is not call or call.args:
            return
        optimizer = dotted_name(call.func).rpartition(".")[0]
        function = self.program.function(call)
        scales = self.uses(function, "scale")
        if not optimizer or len({use.receiver for use in scales}) != 1:
            return
        scaler = scales[0].receiver
        if any(use.argument == optimizer for use in self.steps_of(function, scaler)):
            # The optimizer steps twice; a second step through the scaler before the update would raise.
            return
        updates = [use for use in self.uses(function, "update") if use.receiver == scaler]
        if any(self.is_before(use.call, call) for use in updates) or self.is_looped_over(call, optimizer):
            return
        # If only one branch scales, the other still needs the plain step.
        if not all(self.runs_before(use.call, call) for use in scales):
            return
        self.rewrite(call, f"{scaler}.step({optimizer})")
        if not updates:
            steps = [item for item in self.program.behind(statement) if self.is_step(item)]
            self.insert_after(steps[-1] if steps else statement, f"{scaler}.update()")


@fixes("AMP013")
class ScaleTheLoss(ScalingCodemod):
    """Write `scaler.scale(loss).backward()`, for every loss of the step."""

    safety = "safe"

    def plan(self) -> None:
        call = self.find(cst.Call)
        function = self.program.function(call) if call is not None else None
        step = self.scaler_step(function) if function is not None else None
        if call is None or function is None or step is None:
            return
        start = max(
            (
                self.program.start(use.call)
                for use in self.uses(function, "step")
                if use.argument and self.is_before(use.call, call)
            ),
            default=(0, 0),
        )
        losses = [
            backward
            for backward in self.program.every(cst.Call, function)
            if is_attribute(backward.func, "backward") and self.program.function(backward) is function
            if start < self.program.start(backward) < self.program.start(step.call)
            if not is_attribute(getattr(backward.func.value, "func", None), "scale")
        ]
        keywords = [item.keyword for backward in losses for item in backward.args]
        if any(word is None or word.value == "gradient" for word in keywords):
            return
        for backward in losses:
            assert isinstance(backward.func, cst.Attribute)
            self.scale(backward, step.receiver)
            self._remove_discarded(function, step.receiver, dotted_name(backward.func.value))

    def _remove_discarded(self, function: cst.CSTNode, scaler: str, loss: str) -> None:
        """Remove `scaler.scale(loss)` as a statement of its own, which has no effect."""
        for use in self.uses(function, "scale"):
            statement = self.program.parent(use.call)
            if isinstance(statement, cst.Expr) and (use.receiver, use.argument) == (scaler, loss):
                self.remove(statement)


@fixes("AMP008")
class DisableScaler(Codemod):
    """Make the scaler with enabled=False: its calls then do nothing."""

    def plan(self) -> None:
        for place in (self.finding.location, *(related.location for related in self.finding.related)):
            call = self.program.find(place, cst.Call)
            if call is None or not dotted_name(call.func).endswith("GradScaler"):
                continue
            given = keyword(call, "enabled")
            if given is not None:
                self.rewrite(given.value, "False")
            elif not any(item.star == "**" for item in call.args) and len(call.args) < 5:
                self.advice = (
                    "Make the scaler with enabled=False, or take it out: bfloat16 needs no loss scaling."
                )
                self.change(call, lambda call: append_argument(call, "enabled=False"))
            return
