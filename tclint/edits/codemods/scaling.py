"""Fixes for the order of a scaled step: unscale before clipping, step through the scaler, update."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from tclint.edits.codemod import Codemod, append_argument, fixes, keyword
from tclint.edits.program import LOOPS, Statement, find_all, index_of, is_constant, names_in
from tclint.source.syntax.expressions import dotted_name


class MethodCall(NamedTuple):
    """A call `receiver.method(argument, ...)`."""

    call: cst.Call
    receiver: str
    """Its dotted name; '' if it is none."""
    argument: str
    """The first argument if it is a dotted name, else ''."""


class ScalingCodemod(Codemod):
    """The base of codemods for gradient scalers, with questions about a training step."""

    def uses(self, role: str) -> list[MethodCall]:
        """The calls that the rule saw: 'at', 'backward' or 'step', and of the finding's scaler 'scale',
        'unscale', 'scaler_step' and 'update'."""
        return [
            MethodCall(call, dotted_name(call.func).rpartition(".")[0], argument)
            for call in sorted(self.calls(role), key=self.program.start)
            for argument in [dotted_name(call.args[0].value) if call.args else ""]
        ]

    def scaler_step(self) -> MethodCall | None:
        """The scaler's step that the finding names."""
        return next((use for use in self.uses("at") if use.receiver and use.argument), None)

    def clips_in(self, node: cst.CSTNode) -> int:
        """The number of places at and below a node that clip gradients."""
        return sum(node in (clip, *self.program.ancestors(clip)) for clip in self.nodes("clip"))

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


@fixes("AMP003")
class UnscaleFirst(ScalingCodemod):
    """Insert `scaler.unscale_(optimizer)` before the gradients of a step are first read."""

    def plan(self) -> None:
        statement = self.program.statement_at(self.finding.location)
        if statement is None:
            return
        step = self.scaler_step()
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
        first = self._first_clip(block, top)
        if first is not top or self.clips_in(top) > 1:
            target = first
        misplaced = self._misplaced(block, target, step_statement)
        if misplaced is None or self._is_unscaled(target):
            return
        optimizers = {use.argument for use in self.uses("scaler_step")}
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

    def _is_unscaled(self, target: Statement) -> bool:
        """Whether `unscale_` has run for this optimizer since the last update; a second one would raise."""
        updates = [use.call for use in self.uses("update") if self.is_before(use.call, target)]
        return any(
            self.is_before(use.call, target)
            and not any(self.is_before(use.call, update) for update in updates)
            and self.runs_before(use.call, target)
            for use in self.uses("unscale")
        )

    def _misplaced(
        self, block: list[Statement], target: Statement, step_statement: Statement
    ) -> list[cst.Expr] | None:
        """The statements that unscale too late; None if one is not a statement of the block."""
        found: list[cst.Expr] = []
        for use in self.uses("unscale"):
            if self.is_before(use.call, target) or not self.is_before(use.call, step_statement):
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
            self._first_clip(block, clip),
            f"if {self.program.code(guard.test)}:\n{self.program.module.default_indent}{code}",
        )

    def _first_clip(self, block: list[Statement], top: Statement) -> Statement:
        """The first statement of the block that clips gradients of the same step."""
        first = top
        others = {
            use.call for role in ("backward", "step", "scaler_step", "update") for use in self.uses(role)
        }
        for statement in reversed(block[: index_of(block, top)]):
            if not others.isdisjoint(find_all(statement, cst.Call)):
                break
            if self.clips_in(statement):
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
        step = self.scaler_step()
        statement = self.program.statement(step.call) if step is not None else None
        if step is None or statement is None or self.is_looped_over(step.call, step.argument):
            return
        # An update that runs too rarely has to be moved to a place that only the author can choose.
        if self.uses("update"):
            return
        steps = [self.program.statement(use.call) for use in self.uses("scaler_step")]
        here = [item for item in self.program.block(statement) if item in steps]
        self.insert_after(here[-1], f"{step.receiver}.update()")
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
        scales = self.uses("scale")
        scaler = scales[0].receiver if len({use.receiver for use in scales}) == 1 else ""
        if not optimizer or not scaler:
            return
        if any(use.argument == optimizer for use in self.uses("scaler_step")):
            # The optimizer steps twice; a second step through the scaler before the update would raise.
            return
        updates = self.uses("update")
        if any(self.is_before(use.call, call) for use in updates) or self.is_looped_over(call, optimizer):
            return
        # If only one branch scales, the other still needs the plain step.
        if not all(self.runs_before(use.call, call) for use in scales):
            return
        self.rewrite(call, f"{scaler}.step({optimizer})")
        if not updates:
            uses = (*self.uses("step"), *self.uses("scaler_step"))
            steps = [self.program.statement(use.call) for use in uses]
            later = [item for item in self.program.behind(statement) if item in steps]
            self.insert_after(later[-1] if later else statement, f"{scaler}.update()")


@fixes("AMP013")
class ScaleTheLoss(ScalingCodemod):
    """Write `scaler.scale(loss).backward()`, for every loss of the step."""

    safety = "safe"

    def plan(self) -> None:
        call, step = self.find(cst.Call), self.scaler_step()
        if call is None or step is None:
            return
        steps = [use.call for use in self.uses("scaler_step") if self.is_before(use.call, call)]
        scaled = [use.call for use in self.uses("scale")]
        losses = [
            use.call
            for use in self.uses("backward")
            if not any(self.is_before(use.call, item) for item in steps)
            if self.is_before(use.call, step.call) and getattr(use.call.func, "value", None) not in scaled
        ]
        keywords = [item.keyword for backward in losses for item in backward.args]
        if call not in losses or any(word is None or word.value == "gradient" for word in keywords):
            return
        for backward in losses:
            assert isinstance(backward.func, cst.Attribute)
            self.scale(backward, step.receiver)
            self._remove_discarded(dotted_name(backward.func.value))

    def _remove_discarded(self, loss: str) -> None:
        """Remove `scaler.scale(loss)` as a statement of its own, which has no effect."""
        for use in self.uses("scale"):
            statement = self.program.parent(use.call)
            if isinstance(statement, cst.Expr) and use.argument == loss:
                self.remove(statement)


@fixes("AMP008")
class DisableScaler(Codemod):
    """Make the scaler with enabled=False: its calls then do nothing."""

    def plan(self) -> None:
        for call in self.calls("made"):
            given = keyword(call, "enabled")
            if given is not None:
                self.rewrite(given.value, "False")
            elif not any(item.star == "**" for item in call.args) and len(call.args) < 5:
                self.advice = (
                    "Make the scaler with enabled=False, or take it out: bfloat16 needs no loss scaling."
                )
                self.change(call, lambda call: append_argument(call, "enabled=False"))
