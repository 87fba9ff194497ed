"""Fix of sizes that no power of two divides."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from tclint.edits.codemod import Codemod, fixes

_MULTIPLE = 256


@fixes("DIM014")
class RoundWidth(Codemod):
    """`int(8 * dim / 3)` becomes `256 * ((int(8 * dim / 3) + 255) // 256)`."""

    def plan(self) -> None:
        statement = self.program.statement_at(self.finding.location)
        value = statement.value if isinstance(statement, cst.Assign | cst.AnnAssign) else None
        if value is not None and m.matches(value, m.Call(func=m.Name("int"))):
            width = self.program.code(value)
            self.rewrite(value, f"{_MULTIPLE} * (({width} + {_MULTIPLE - 1}) // {_MULTIPLE})")
