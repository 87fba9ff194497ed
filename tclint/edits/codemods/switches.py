"""Fixes for the switches of precision, cuDNN and debugging."""

from __future__ import annotations

from typing import TypeGuard

import libcst as cst

from tclint.edits.codemod import Codemod, fixes
from tclint.edits.codemods.calls import pass_stated
from tclint.edits.program import Line, find_all, is_name
from tclint.source.syntax.expressions import dotted_name


class _BehindImports(Codemod):
    """Inserts a switch after the imports at the top of the module, between blank lines."""

    def set(self, code: str) -> None:
        """Insert the switch, a line that begins with a module's name, behind the import of that module."""
        name = code.partition(".")[0]
        last: cst.SimpleStatementLine | None = None
        following: Line | None = None
        is_bound = False
        for line in self.program.module.body:
            assert isinstance(line, cst.SimpleStatementLine | cst.BaseCompoundStatement)
            if _is_one(line, cst.Import, cst.ImportFrom):
                last, following = line, None
                is_bound = is_bound or name in _names_of_modules(line)
                continue
            following = following or line
            if is_bound and not _is_guarded_import(line):
                break
        if last is None or not is_bound:
            return
        blank = [cst.EmptyLine(indent=False)]
        self.insert_after(last.body[0], self.parsed(code).with_changes(leading_lines=blank))
        if following is not None and not following.leading_lines:
            self.change(following, lambda line: line.with_changes(leading_lines=blank))


def _is_one(line: cst.CSTNode, *kinds: type[cst.BaseSmallStatement]) -> TypeGuard[cst.SimpleStatementLine]:
    """Whether a line is one statement, of one of the kinds."""
    return isinstance(line, cst.SimpleStatementLine) and [type(item) in kinds for item in line.body] == [True]


def _is_guarded_import(line: Line) -> bool:
    """Whether a statement is `try: import x` or `if ...: import x`."""
    return (
        isinstance(line, cst.Try | cst.If)
        and isinstance(line.body, cst.IndentedBlock)
        and all(_is_one(item, cst.Import, cst.ImportFrom, cst.Assign, cst.Pass) for item in line.body.body)
    )


def _names_of_modules(line: Line) -> set[str]:
    """The names that the imports on a line bind."""
    return {
        alias.evaluated_alias or alias.evaluated_name.partition(".")[0]
        for alias in find_all(line, cst.ImportAlias)
    }


@fixes("PRC001")
class AllowTf32(_BehindImports):
    """Set the precision of float32 matrix products after the imports, or by the framework's argument."""

    def plan(self) -> None:
        if pass_stated(self, self.find(cst.Call)):
            return
        quote, torch = self.program.quote, self.program.torch
        if torch is not None:
            self.set(f"{torch}.set_float32_matmul_precision({quote}high{quote})")


@fixes("RUN001")
class BenchmarkCudnn(_BehindImports):
    """Let cuDNN measure its algorithms, by a switch after the imports."""

    def plan(self) -> None:
        cudnn = self.program.name_of("torch.backends.cudnn")
        if cudnn is not None:
            self.set(f"{cudnn}.benchmark = True")


@fixes("RUN002")
class SwitchBenchmarkOn(Codemod):
    """Turn False into True."""

    def plan(self) -> None:
        statement = self.find(cst.Assign)
        if statement is None or not is_name(statement.value, "False"):
            return
        if all(dotted_name(to.target).endswith("cudnn.benchmark") for to in statement.targets):
            self.rewrite(statement.value, "True")


@fixes("PRC005")
class CorrectPrecision(Codemod):
    """Write the value that torch accepts, if it is clear which one is meant."""

    safety = "safe"

    def plan(self) -> None:
        meant, value = self.finding.evidence.get("replacement"), self.finding.evidence.get("value")
        root = (
            self.find(cst.Call)
            or self.program.statement_at(self.finding.location)
            or self.find(cst.SimpleString)
        )
        if root is None or not isinstance(meant, str):
            return
        wrong = [text for text in find_all(root, cst.SimpleString) if text.evaluated_value == value]
        if len(wrong) == 1:
            self.rewrite(wrong[0], f"{wrong[0].prefix}{wrong[0].quote}{meant}{wrong[0].quote}")


@fixes("RUN005")
class RemoveDebugging(Codemod):
    """Remove the code that switches a debugging aid on: a statement, or a with block around others."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None:
            return
        statement = self.program.statement(call)
        last = dotted_name(call.func).rpartition(".")[2]
        if isinstance(statement, cst.With) and last in ("detect_anomaly", "set_detect_anomaly", "emit_nvtx"):
            if [item.item for item in statement.items] != [call] or not self.dedent(statement, 0):
                return
        elif isinstance(statement, cst.Expr) and statement.value is call and last == "set_detect_anomaly":
            self.remove(statement)
        else:
            return
        self.orphan_imports_of(call)


@fixes("PRC004")
class OneTf32Api(Codemod):
    """Remove the older switch; the newer one, which is set after it, takes effect."""

    advice = "Set TF32 through one API only: the older switch before this one goes."

    def plan(self) -> None:
        newer = self.find(cst.Assign)
        if newer is None or not self.finding.related:
            return
        older = self.program.statement_at(self.finding.related[0].location)
        if isinstance(older, cst.Assign):
            if len(older.targets) != 1:
                return
            written = dotted_name(older.targets[0].target)
            # The older switch of cuDNN covers both convolutions and recurrent layers.
            parts = any(
                dotted_name(to.target).endswith((".conv.fp32_precision", ".rnn.fp32_precision"))
                for to in newer.targets
            )
            if not written.endswith(".allow_tf32") or (parts and "matmul" not in written):
                return
        elif not (isinstance(older, cst.Expr) and isinstance(older.value, cst.Call)):
            return
        # A switch under a test is a deliberate choice.
        if isinstance(older, cst.BaseSmallStatement) and isinstance(
            self.program.enclosing(older), cst.Module | cst.FunctionDef | cst.ClassDef
        ):
            self.remove(older)
