"""Fix for checkpoints without the scaler: save and load its state beside the optimizer's."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from tclint.edits.codemod import Codemod, append_argument, append_item, fixes
from tclint.source.syntax.expressions import dotted_name


@fixes("AMP018")
class SaveAndLoadScaler(Codemod):
    """Save and load the scaler's state, or do neither: a state that is never loaded is of no use."""

    def plan(self) -> None:
        if len(self.finding.related) < 2:
            return
        made, state = (self.program.find(item.location, cst.Call) for item in self.finding.related[:2])
        assignment = self.program.statement(made) if made is not None else None
        if state is None or not isinstance(assignment, cst.Assign) or assignment.value is not made:
            return
        scaler = dotted_name(assignment.targets[0].target)
        optimizer = dotted_name(state.func).rpartition(".")[0]
        loads = [
            call
            for call in self.program.every(cst.Call)
            if dotted_name(call.func) == f"{optimizer}.load_state_dict"
        ]
        if not scaler or len(assignment.targets) != 1 or len(loads) != 1:
            return
        key, save = self._saving(state, scaler)
        loading = self._loading(loads[0], scaler, key) if key else None
        if loading and all(self._reaches(assignment, scaler, use) for use in (state, loads[0])):
            save()
            self.insert_after(*loading)

    def _saving(self, state: cst.Call, scaler: str) -> tuple[str, Callable[[], None]]:
        """The key of the optimizer's state, '' if unknown, and a function that saves the scaler's beside
        it."""
        item = self.program.parent(state)
        holder = self.program.parent(item) if item is not None else None
        quote = self.program.quote
        if isinstance(holder, cst.Dict) and isinstance(item, cst.DictElement):
            code = f"{quote}scaler{quote}: {scaler}.state_dict()"
            key = item.key.raw_value if isinstance(item.key, cst.SimpleString) else ""
            return key, lambda: self.change(holder, lambda display: append_item(display, code))
        if isinstance(holder, cst.Call) and isinstance(item, cst.Arg) and item.keyword is not None:
            code = f"scaler={scaler}.state_dict()"
            return item.keyword.value, lambda: self.change(holder, lambda call: append_argument(call, code))
        return "", lambda: None

    def _loading(self, load: cst.Call, scaler: str, key: str) -> tuple[cst.Expr, str] | None:
        """The statement after which to load the scaler's state, and the code that loads it if there is
        one."""
        statement = self.program.parent(load)
        if not isinstance(statement, cst.Expr) or self.program.own_line(statement) is None or not load.args:
            return None
        given, quote = load.args[0].value, self.program.quote
        match given:
            case cst.Subscript(
                slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as written))]
            ):
                checkpoint = dotted_name(given.value)
            case _:
                return None
        if written.raw_value != key or not checkpoint:
            return None
        return statement, (
            f"if {quote}scaler{quote} in {checkpoint}:\n"
            f"{self.program.module.default_indent}"
            f"{scaler}.load_state_dict({checkpoint}[{quote}scaler{quote}])"
        )

    def _reaches(self, made: cst.Assign, scaler: str, use: cst.CSTNode) -> bool:
        """Whether the name means the scaler at the use and the scaler is made by then."""
        maker, user = self.program.function(made), self.program.function(use)
        if "." in scaler:
            return scaler.startswith("self.") and self._class_around(made) is self._class_around(use)
        if maker is user:
            return self.program.start(made) < self.program.start(use)
        return isinstance(maker, cst.Module | cst.FunctionDef) and maker in self.program.ancestors(user)

    def _class_around(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return next(
            (outer for outer in self.program.ancestors(node) if isinstance(outer, cst.ClassDef)), None
        )
