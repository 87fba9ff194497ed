"""Fix of training in float16 without loss scaling: make a scaler and route the step through it."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from tclint.edits.arguments import keyword
from tclint.edits.codemod import fixes
from tclint.edits.codemods.scaling import ScalingCodemod, clips_in
from tclint.edits.program import CONSTANT, LOOPS
from tclint.source.syntax.expressions import dotted_name


@fixes("AMP001")
class ScaleLosses(ScalingCodemod):
    """Make a scaler before the training loop; scale the loss, step and update through it.

    Only where forward, backward and step stand in one function, in loops that begin there: a scaler has to
    live as long as the training.
    """

    advice = "Scale the loss with one torch.amp.GradScaler, made before the training loop."

    def plan(self) -> None:
        call, program = self.find(cst.Call), self.program
        if call is None or program.torch is None or "scaler" in program.text or call.args:
            return
        function = program.function(call)
        loops = [
            outer
            for outer in program.ancestors(call)
            if isinstance(outer, LOOPS) and program.function(outer) is function
        ]
        # The outermost loop is the whole training: the module's, or one of epochs.
        if not loops or not (isinstance(function, cst.Module) or len(loops) > 1):
            return
        outermost = loops[-1]
        backwards = [use.call for use in self.uses(function, "backward")]
        steps = [use for use in self.uses(function, "step") if "opt" in use.receiver.lower()]
        # All of the function is one step: one optimizer, one place where it steps.
        if backwards != [call] or len(steps) != 1:
            return
        step = steps[0]
        statement = program.parent(step.call)
        if not isinstance(statement, cst.Expr) or step.call.args or self.is_before(step.call, call):
            return
        enabled = self._enabled(function)
        if outermost not in program.ancestors(step.call) or enabled is None:
            return
        clipping = [item for item in program.before(statement) if clips_in(item)]
        if clips_in(outermost) != sum(map(clips_in, clipping)):
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
        """The scaler's `enabled` argument, as autocast has it; None where it is not a plain name."""
        for related in self.finding.related:
            region = self.program.find(related.location, cst.Call)
            if region is None:
                continue
            given = keyword(region, "enabled")
            if given is None:
                break
            if m.matches(given.value, CONSTANT):
                return ""
            name = dotted_name(given.value)
            return f", enabled={name}" if name and self.program.function(region) is function else None
        return "" if self.finding.evidence.get("enabled") == "always" else None
