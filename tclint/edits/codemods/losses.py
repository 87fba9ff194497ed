"""Fix for losses that get probabilities: use the losses that take logits."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from tclint.edits.codemod import Codemod, fixes, has_stars, keyword, positional
from tclint.edits.program import is_attribute
from tclint.edits.statements import has_comment
from tclint.source.syntax.expressions import dotted_name

_SIGMOIDS = frozenset(("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit"))
_SIGMOID_MODULES = frozenset(("torch.nn.Sigmoid", "torch.nn.modules.activation.Sigmoid"))
_SOFTMAXES = frozenset(("torch.softmax", "torch.nn.functional.softmax"))
_INSTEAD = {
    "binary_cross_entropy": "binary_cross_entropy_with_logits",
    "nll_loss": "cross_entropy",
    "BCELoss": "BCEWithLogitsLoss",
    "NLLLoss": "CrossEntropyLoss",
}
_BINARY = ("binary_cross_entropy", "BCELoss")
_KEEP = ("squeeze", "view", "reshape", "flatten", "unsqueeze", "float", "to", "cuda", "contiguous")
"""Methods allowed between the probabilities and the loss, since they do the same to logits."""
_SIMPLE = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


@fixes("AMP007", "ARC012")
class LossOfLogits(Codemod):
    """Turn `binary_cross_entropy(sigmoid(x), y)` into `binary_cross_entropy_with_logits(x, y)`, and likewise
    `nll_loss` of a log-softmax into `cross_entropy`, as functions and as modules."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None or not call.args or call.args[0].star or call.args[0].keyword is not None:
            return
        is_function = self.program.qualified(call.func).startswith("torch.nn.functional.")
        named = call.func if is_function else self._class_of(call.func)
        written = self.program.qualified(named) if named is not None else ""
        last = written.rpartition(".")[2]
        if named is None or last not in _INSTEAD or not written.startswith("torch.nn."):
            return
        hand_over = self._logits_for(call, last in _BINARY)
        if hand_over is None:
            return
        new = _INSTEAD[last]
        if isinstance(named, cst.Attribute):
            self.rewrite(named.attr, new)
        elif isinstance(named, cst.Name) and named.value == last and new not in self.program.names:
            self.rewrite(named, new)
            self.import_instead(written.rpartition(".")[0], new, last)
        else:
            return
        hand_over()

    def _class_of(self, function: cst.BaseExpression) -> cst.BaseExpression | None:
        """The class of a loss module; None unless exactly one assignment makes it and one call uses it."""
        if isinstance(function, cst.Call):
            return function.func  # nn.BCELoss()(x, y)
        name = dotted_name(function)
        made = self.program.assigned(name) if name else []
        if len(made) != 1 or len(made[0].targets) != 1:
            return None
        if self.program.loads(self.program.module, name) != [function]:
            return None
        value = made[0].value
        while isinstance(value, cst.Call) and is_attribute(value.func, "cuda", "to"):
            value = value.func.value
        return value.func if isinstance(value, cst.Call) else None

    def _logits_for(self, call: cst.Call, binary: bool) -> Callable[[], None] | None:
        """A function that passes logits instead, in the call or in the one assignment of its argument."""
        passed = call.args[0].value
        made = self._probabilities(passed, binary)
        if made is not None:
            return self._replaced(*made)
        if not isinstance(passed, cst.Name):
            return None
        function = self.program.function(call)
        stores = self.program.stores(function, passed.value)
        statement = self.program.statement(stores[0]) if len(stores) == 1 else None
        if not isinstance(statement, cst.Assign) or [to.target for to in statement.targets] != stores:
            return None
        later = self.program.behind(statement)
        if not any(outer in later for outer in self.program.ancestors(call)):
            return None
        made = self._probabilities(statement.value, binary)
        if made is None:
            return None
        _, logits = made
        at = (self.program.start(statement), self.program.start(call))
        unchanged = (
            statement.value is made[0]
            and isinstance(logits, cst.Name)
            and logits.value != passed.value
            and not any(
                at[0] < self.program.start(store) < at[1]
                for store in self.program.stores(function, logits.value)
            )
        )
        if len(self.program.loads(function, passed.value)) > 1:
            # The probabilities are used elsewhere, so pass the logits if they are still unchanged.
            return (lambda: self.change(passed, lambda _: logits)) if unchanged else None
        line = self.program.own_line(statement)
        if unchanged and isinstance(line, cst.SimpleStatementLine) and not has_comment(line):

            def both() -> None:
                self.change(passed, lambda _: logits)
                self.remove(statement)

            return both
        return self._replaced(*made)

    def _probabilities(
        self, value: cst.BaseExpression, binary: bool
    ) -> tuple[cst.Call, cst.BaseExpression] | None:
        """(call that turns logits into probabilities, logits) in a value, below methods that only reshape or
        move."""
        while isinstance(value, cst.Call):
            logits = self._of_sigmoid(value) if binary else self._of_log_softmax(value)
            if logits is not None:
                return value, logits
            function = value.func
            if not isinstance(function, cst.Attribute) or function.attr.value not in _KEEP:
                return None
            if self.program.qualified(function):
                return None
            value = function.value
        return None

    def _of_sigmoid(self, call: cst.Call) -> cst.BaseExpression | None:
        if any(item.star or item.keyword for item in call.args):
            return None
        if len(call.args) == 1:
            made = call.func.func if isinstance(call.func, cst.Call) and not call.func.args else None
            if self.program.qualified(call.func) in _SIGMOIDS or (
                made is not None and self.program.qualified(made) in _SIGMOID_MODULES
            ):
                return call.args[0].value
        return self._receiver(call, "sigmoid") if not call.args else None

    def _receiver(self, call: cst.Call, method: str) -> cst.BaseExpression | None:
        """The object whose method is called; None if the name is a function of a module."""
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == method:
            return None if self.program.qualified(call.func) else call.func.value
        return None

    def _of_log_softmax(self, call: cst.Call) -> cst.BaseExpression | None:
        """The operand x of `torch.log(torch.softmax(x, 1))`, also as methods; the loss sums only over that
        dim."""
        if any(item.star or item.keyword for item in call.args):
            return None
        if self.program.qualified(call.func) == "torch.log" and len(call.args) == 1:
            inner: cst.BaseExpression | None = call.args[0].value
        else:
            inner = self._receiver(call, "log") if not call.args else None
        if not isinstance(inner, cst.Call) or has_stars(inner):
            return None
        given, dim = [item.value for item in positional(inner)], keyword(inner, "dim")
        named = [item for item in inner.args if item.keyword is not None]
        if self.program.qualified(inner.func) not in _SOFTMAXES:
            receiver = self._receiver(inner, "softmax")
            given = [receiver, *given] if receiver is not None else []
        if dim is not None:
            given.append(dim.value)
        if len(given) != 2 or len(named) != int(dim is not None) or self.program.code(given[1]) != "1":
            return None
        return given[0]

    def _replaced(self, made: cst.Call, logits: cst.BaseExpression) -> Callable[[], None] | None:
        """A function that replaces probabilities by logits, in parentheses if an operator binds to them."""
        without = made.deep_replace(logits, cst.Name("x"))
        if isinstance(without, cst.CSTNode) and has_comment(without):
            return None
        outer = self.program.parent(made)
        if isinstance(outer, cst.Arg) and not isinstance(logits, cst.NamedExpr):
            logits = logits.with_changes(lpar=(), rpar=())
        elif not (isinstance(outer, cst.Assign) or logits.lpar or isinstance(logits, _SIMPLE)):
            logits = logits.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        bare = logits
        return lambda: self.change(made, lambda _: bare)
