"""Fix of batch norms that a cast of their model takes along."""

from __future__ import annotations

import libcst as cst

from tclint.edits.codemod import Codemod, fixes
from tclint.edits.program import names_in
from tclint.source.syntax.expressions import dotted_name

_NAMES = ("module", "layer", "part")


@fixes("ARC019")
class NormsInFloat(Codemod):
    """Put the batch norms back to float32 behind the cast of the model."""

    advice = "Put the batch norms back to float32 after the cast."

    def plan(self) -> None:
        call = self.find(cst.Call)
        torch, model = self.program.torch, str(self.finding.evidence.get("model", ""))
        statement = self.program.statement(call) if call is not None else None
        if torch is None or not model or statement is None or self.program.own_line(statement) is None:
            return
        if call is None or not _leaves_cast(statement, call, model):
            return
        taken = names_in(self.program.module)
        name = next((name for name in _NAMES if name not in taken), None)
        if name is not None:
            step = self.program.module.default_indent
            code = (
                f"for {name} in {model}.modules():\n"
                f"{step}if isinstance({name}, {torch}.nn.modules.batchnorm._BatchNorm):\n"
                f"{step}{step}{name}.float()"
            )
            self.insert_after(statement, code)


def _leaves_cast(statement: cst.CSTNode, call: cst.Call, model: str) -> bool:
    """The model is what the statement casts: `model.half()`, or `model = ....half()`."""
    match statement:
        case cst.Expr(value=value):
            return (
                value is call
                and isinstance(call.func, cst.Attribute)
                and dotted_name(call.func.value) == model
            )
        case cst.Assign(targets=[cst.AssignTarget(target=target)], value=value):
            pass
        case cst.AnnAssign(target=target, value=value):
            pass
        case _:
            return False
    if dotted_name(target) != model:
        return False
    # `DDP(Net().half()).cuda()` is a module that holds the model.
    while isinstance(value, cst.Call):
        if value is call:
            return True
        value = value.func.value if isinstance(value.func, cst.Attribute) else None
    return False
