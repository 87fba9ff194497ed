"""Fix of unscaling in every round of an accumulation: it belongs to the rounds that step."""

from __future__ import annotations

import libcst as cst

from tclint.edits.codemod import fixes
from tclint.edits.codemods.scaling import ScalingCodemod, Use, clips_in
from tclint.edits.program import statements_of
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
            self.remove(statement)  # a second time
            return
        moved: list[cst.Expr | cst.Assign] = [statement]
        for item in self.program.behind(statement):
            if isinstance(item, cst.If):
                self._into_guard(moved, item, dotted_name(call.func).rpartition(".")[0])
                return
            if not isinstance(item, cst.Expr | cst.Assign) or not clips_in(item):
                return
            moved.append(item)

    def _into_guard(self, moved: list[cst.Expr | cst.Assign], guard: cst.If, scaler: str) -> None:
        if guard.orelse is not None or not isinstance(guard.body, cst.IndentedBlock):
            return
        if any(self.program.own_line(item) is None for item in moved):
            return
        if any(use.receiver == scaler for use in self._steps_in(guard)):
            first = statements_of(guard.body)[0]
            for item in moved:
                self.insert_before(first, self.move(item))

    def _steps_in(self, guard: cst.If) -> list[Use]:
        function = self.program.function(guard)
        return [use for use in self.uses(function, "step") if guard in self.program.ancestors(use.call)]
