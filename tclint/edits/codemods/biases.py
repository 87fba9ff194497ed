"""Fixes for layers: biases that a norm cancels, norms that a cast includes, widths."""

from __future__ import annotations

import re

import libcst as cst

from tclint.edits.codemod import Codemod, append_argument, fixes, keyword
from tclint.edits.program import find_all, is_attribute, is_name, names_in
from tclint.source.syntax.expressions import dotted_name

_NAMES = ("module", "layer", "part")


@fixes("ARC019")
class NormsInFloat(Codemod):
    """Cast the batch norms back to float32 after the cast of the model."""

    advice = "Put the batch norms back to float32 after the cast."

    def plan(self) -> None:
        call = self.find(cst.Call)
        torch, model = self.program.torch, str(self.finding.evidence.get("model", ""))
        statement = self.program.statement(call) if call is not None else None
        if torch is None or not model or statement is None or self.program.own_line(statement) is None:
            return
        if call is None or not _leaves_cast(statement, call, model):
            return
        taken = self.program.names
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
    """Whether a statement casts the model itself: `model.half()`, or `model = ....half()`."""
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
    # `DDP(Net().half()).cuda()` is a module that contains the model.
    while isinstance(value, cst.Call):
        if value is call:
            return True
        value = value.func.value if isinstance(value.func, cst.Attribute) else None
    return False


_MULTIPLE = 256


@fixes("DIM014")
class RoundWidth(Codemod):
    """Turn `int(8 * dim / 3)` into `256 * ((int(8 * dim / 3) + 255) // 256)`."""

    def plan(self) -> None:
        statement = self.program.statement_at(self.finding.location)
        value = statement.value if isinstance(statement, cst.Assign | cst.AnnAssign) else None
        if isinstance(value, cst.Call) and is_name(value.func, "int"):
            width = self.program.code(value)
            self.rewrite(value, f"{_MULTIPLE} * (({width} + {_MULTIPLE - 1}) // {_MULTIPLE})")


_PUBLISHED = re.compile(
    r"load_url|from_url|pretrained|hf_hub|model_urls|weightsenum|register_model|download|load_model|load_weights"
)
"""Identifiers, in lower case, in files whose models load published weights."""
_BIASED = re.compile(r"Conv|Linear")


@fixes("ARC001")
class WithoutBias(Codemod):
    """Build the layer with bias=False."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None or keyword(call, "bias") is not None or any(item.star == "*" for item in call.args):
            return
        published = any(_PUBLISHED.search(name.lower()) for name in self.program.names)
        if not published and not self._needs_bias():
            self.change(call, lambda call: append_argument(call, "bias=False"))

    def _needs_bias(self) -> bool:
        """Whether some code may use the bias of the layer as a tensor; it would find None."""
        for text in self.program.every(cst.SimpleString):
            if text.raw_value == "bias" or ".bias" in text.raw_value:
                return True
        return any(
            not (
                self._is_set(node) or self._is_tested(node) or self._is_guarded(node) or self._is_other(node)
            )
            for node in self.program.every(cst.Attribute)
            if node.attr.value == "bias" and not is_name(node.value, "self")
        )

    def _is_set(self, node: cst.Attribute) -> bool:
        return isinstance(self.program.parent(node), cst.AssignTarget | cst.Del)

    def _is_tested(self, node: cst.Attribute) -> bool:
        """Whether a bias is only tested: `conv.bias is None`, or as a condition itself."""
        outer = self.program.parent(node)
        if isinstance(outer, cst.Comparison):
            return isinstance(outer.comparisons[0].operator, cst.Is | cst.IsNot)
        return isinstance(outer, cst.If | cst.IfExp) and outer.test is node

    def _is_guarded(self, node: cst.Attribute) -> bool:
        """Whether a bias is used under a test of it, or under one that only other layers pass."""
        inner: cst.CSTNode = node
        for outer in self.program.ancestors(node):
            if isinstance(outer, cst.If) and inner is outer.body:
                if any(node.deep_equals(test) for test in find_all(outer.test, cst.Attribute)):
                    return True
                names = names_in(outer.test)
                names.update(text.raw_value for text in find_all(outer.test, cst.SimpleString))
                if any("Norm" in name for name in names) and not any(map(_BIASED.search, names)):
                    return True
            inner = outer
        return False

    def _is_other(self, node: cst.Attribute) -> bool:
        """Whether a bias belongs to something else: every assignment of `out` for `self.out.bias` calls
        something without Conv or Linear in its name."""
        if not isinstance(node.value, cst.Attribute) or not dotted_name(node.value):
            return False
        layer = node.value.attr.value
        made = [
            item.value
            for item in self.program.every(cst.Assign)
            if any(is_attribute(to.target, layer) for to in item.targets)
        ]
        return bool(made) and all(
            isinstance(value, cst.Call)
            and dotted_name(value.func)
            and not _BIASED.search(dotted_name(value.func))
            for value in made
        )
