"""Fixes of how long a scaler lives and when it is updated."""

from __future__ import annotations

import libcst as cst

from tclint.edits.codemod import fixes
from tclint.edits.codemods.scaling import ScalingCodemod
from tclint.edits.program import LOOPS, names_in
from tclint.source.syntax.expressions import dotted_name


@fixes("AMP011")
class OneScalerOneUpdate(ScalingCodemod):
    """Make the scaler before the loops; update it behind the last step."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        statement = self.program.statement(call) if call is not None else None
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            self._hoist(statement)
        elif isinstance(statement, cst.Expr) and statement.value is call:
            self._delay(statement, statement.value)

    def _hoist(self, statement: cst.Assign) -> None:
        """Move the statement before the outermost loop of its function, unless it needs what a loop binds."""
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
        # Alone in its loop, it would leave it with nothing.
        if line is None or "\n" in self.program.code(statement) or len(self.program.block(statement)) == 1:
            return
        self.insert_before(outermost, self.move(statement))

    def _delay(self, statement: cst.Expr, call: cst.Call) -> None:
        """Move the update behind the last step of its block; only take it out where one stands there."""
        scaler = dotted_name(call.func).rpartition(".")[0]
        steps: list[cst.Expr] = []
        updated = False
        for item in self.program.behind(statement):
            if not isinstance(item, cst.Expr) or not isinstance(item.value, cst.Call):
                continue
            method = dotted_name(item.value.func)
            if method == f"{scaler}.step":
                if updated:
                    return
                steps.append(item)
            elif method == f"{scaler}.update":
                updated = True
            elif method.endswith((".backward", ".zero_grad")):
                break  # the next cycle
        if not scaler or not steps or call.args:
            return
        if updated:
            self.remove(statement)
        elif self.program.own_line(steps[-1]) is not None:
            self.insert_after(steps[-1], self.move(statement))
