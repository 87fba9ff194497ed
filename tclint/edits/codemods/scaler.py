"""Fixes for scalers: make one, keep it for the whole training, unscale and update at the right time."""

from __future__ import annotations

import libcst as cst

from tclint.edits.codemod import fixes, keyword
from tclint.edits.codemods.scaling import ScalingCodemod
from tclint.edits.program import LOOPS, is_constant, names_in, statements_of
from tclint.source.syntax.expressions import dotted_name


@fixes("AMP010")
class UnscaleInRoundsThatStep(ScalingCodemod):
    """Move `unscale_` and the clipping behind it into the `if` that guards the step."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        statement = self.program.parent(call) if call is not None else None
        if call is None or not isinstance(statement, cst.Expr):
            return
        if any(
            isinstance(item, cst.Expr) and item.value.deep_equals(call)
            for item in self.program.before(statement)
        ):
            self.remove(statement)  # a repeated unscaling
            return
        moved: list[cst.Expr | cst.Assign] = [statement]
        for item in self.program.behind(statement):
            if isinstance(item, cst.If):
                self._into_guard(moved, item)
                return
            if not isinstance(item, cst.Expr | cst.Assign) or not self.clips_in(item):
                return
            moved.append(item)

    def _into_guard(self, moved: list[cst.Expr | cst.Assign], guard: cst.If) -> None:
        if guard.orelse is not None or not isinstance(guard.body, cst.IndentedBlock):
            return
        if any(self.program.own_line(item) is None for item in moved):
            return
        if any(guard in self.program.ancestors(use.call) for use in self.uses("scaler_step")):
            first = statements_of(guard.body)[0]
            for item in moved:
                self.insert_before(first, self.move(item))


@fixes("AMP011")
class OneScalerOneUpdate(ScalingCodemod):
    """Make the scaler before the loops, and update it after the last step."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        statement = self.program.statement(call) if call is not None else None
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            self._hoist(statement)
        elif isinstance(statement, cst.Expr) and statement.value is call:
            self._delay(statement)

    def _hoist(self, statement: cst.Assign) -> None:
        """Move the statement before the outermost loop of its function, unless it uses names that a loop
        binds."""
        function = self.program.function(statement)
        around = [
            outer
            for outer in self.program.ancestors(statement)
            if isinstance(outer, cst.BaseCompoundStatement) and self.program.function(outer) is function
        ]
        loops = [outer for outer in around if isinstance(outer, LOOPS)]
        # A test around a loop would have to move too.
        if not loops or around[: around.index(loops[-1]) + 1] != loops:
            return
        outermost, name = loops[-1], dotted_name(statement.targets[0].target)
        stored = self.program.stored_in(outermost)
        if not name or stored.count(name) != 1 or names_in(statement.value) & set(stored):
            return
        line = self.program.own_line(statement)
        # If the statement is alone in its loop, moving it would leave the loop empty.
        if line is None or "\n" in self.program.code(statement) or len(self.program.block(statement)) == 1:
            return
        self.insert_before(outermost, self.move(statement))

    def _delay(self, statement: cst.Expr) -> None:
        """Move the update to after the last step of its block; only remove it if there is one already."""
        steps: list[cst.Expr] = []
        updated = False
        kinds = {use.call: kind for kind in ("scaler_step", "update", "backward") for use in self.uses(kind)}
        for item in self.program.behind(statement):
            if not isinstance(item, cst.Expr) or not isinstance(item.value, cst.Call):
                continue
            kind = kinds.get(item.value)
            if kind == "scaler_step":
                if updated:
                    return
                steps.append(item)
            elif kind == "update":
                updated = True
            elif kind == "backward":
                break  # the next cycle
        if not steps or cst.ensure_type(statement.value, cst.Call).args:
            return
        if updated:
            self.remove(statement)
        elif self.program.own_line(steps[-1]) is not None:
            self.insert_after(steps[-1], self.move(statement))


@fixes("AMP001")
class ScaleLosses(ScalingCodemod):
    """Make a scaler before the training loop; scale the loss, step and update through it.

    This is done only if forward, backward and step are in one function, in loops that begin there, since a
    scaler has to live as long as the training.
    """

    advice = "Scale the loss with one torch.amp.GradScaler, made before the training loop."

    def plan(self) -> None:
        call, program = self.find(cst.Call), self.program
        if call is None or program.torch is None or "scaler" in program.names or call.args:
            return
        function = program.function(call)
        loops = [
            outer
            for outer in program.ancestors(call)
            if isinstance(outer, LOOPS) and program.function(outer) is function
        ]
        # The outermost loop must be the whole training: the module's own loop, or one over epochs.
        if not loops or not (isinstance(function, cst.Module) or len(loops) > 1):
            return
        outermost = loops[-1]
        backwards = [use.call for use in self.uses("backward")]
        steps = [*self.uses("step"), *self.uses("scaler_step")]
        # The function must contain exactly one backward pass and one step.
        if backwards != [call] or len(steps) != 1:
            return
        step = steps[0]
        statement = program.parent(step.call)
        if not isinstance(statement, cst.Expr) or step.call.args or self.is_before(step.call, call):
            return
        enabled = self._enabled(function)
        if outermost not in program.ancestors(step.call) or enabled is None:
            return
        clipping = [item for item in program.before(statement) if self.clips_in(item)]
        if self.clips_in(outermost) != sum(map(self.clips_in, clipping)):
            return
        if clipping and self.is_before(clipping[0], call):
            return
        device = f"{program.quote}cuda{program.quote}"
        self.insert_before(outermost, f"scaler = {program.torch}.amp.GradScaler({device}{enabled})")
        self.scale(call, "scaler")
        if clipping:
            self.insert_before(clipping[0], f"scaler.unscale_({step.receiver})")
        self.rewrite(step.call, f"scaler.step({step.receiver})")
        self.insert_after(statement, "scaler.update()")

    def _enabled(self, function: cst.CSTNode) -> str | None:
        """The `enabled` argument for the scaler, taken from autocast; None if it is not a plain name."""
        for related in self.finding.related:
            region = self.program.find(related.location, cst.Call)
            if region is None:
                continue
            given = keyword(region, "enabled")
            if given is None:
                break
            if is_constant(given.value):
                return ""
            name = dotted_name(given.value)
            return f", enabled={name}" if name and self.program.function(region) is function else None
        return "" if self.finding.evidence.get("enabled") == "always" else None
