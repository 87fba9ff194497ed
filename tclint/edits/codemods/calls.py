"""Fixes that add or remove one argument of a call."""

from __future__ import annotations

from typing import ClassVar

import libcst as cst

from tclint.edits.codemod import (
    Codemod,
    append_argument,
    fixes,
    has_stars,
    is_false,
    keyword,
    remove_argument,
)
from tclint.edits.program import is_attribute, is_constant
from tclint.edits.statements import has_comment
from tclint.source.syntax.expressions import dotted_name


class _WithArgument(Codemod):
    """Pass one more argument, or another value for it."""

    name: str
    value: ClassVar[str] = "True"

    def plan(self) -> None:
        self.change_alike(self.pass_to)

    def pass_to(self, call: cst.Call) -> bool:
        """Give one call the argument; False if it cannot be."""
        if has_stars(call):
            return False
        given = keyword(call, self.name)
        if given is None:
            self.change(call, lambda call: append_argument(call, f"{self.name}={self.value}"))
            return True
        if is_constant(given.value) and self.program.code(given.value) != self.value:
            self.rewrite(given.value, self.value)
            return True
        return False


@fixes("RUN007")
class PinMemory(_WithArgument):
    """Pin the loader's batches."""

    name = "pin_memory"

    def plan(self) -> None:
        if "copies" not in self.finding.evidence:  # the finding is about a loader
            super().plan()


@fixes("RUN012")
class FusedOptimizer(_WithArgument):
    """Use the fused kernel of the optimizer, by its own argument or by that of a framework."""

    name = "fused"

    def pass_to(self, call: cst.Call) -> bool:
        if self.finding.evidence.get("argument") is not None:
            return call in self.calls("written") and pass_stated(self, call)
        return keyword(call, "foreach") is None and super().pass_to(call)


def pass_stated(codemod: Codemod, call: cst.Call | None) -> bool:
    """Pass the argument that the finding's evidence states to a call, replacing another constant; False if
    the evidence states none."""
    name, _, value = str(codemod.finding.evidence.get("argument")).partition("=")
    if call is None or not value or not name.isidentifier() or has_stars(call):
        return False
    value = value.replace('"', codemod.program.quote)
    given = keyword(call, name)
    if given is None:
        codemod.change(call, lambda call: append_argument(call, f"{name}={value}"))
    elif is_constant(given.value):
        codemod.rewrite(given.value, value)
    return True


@fixes("ARC017")
class NoAttentionWeights(_WithArgument):
    """Do not compute attention weights that nothing reads."""

    name, value = "need_weights", "False"


@fixes("DIM008")
class PadToMultiple(_WithArgument):
    """Pad sequences to a multiple of 8."""

    name, value = "pad_to_multiple_of", "8"

    def plan(self) -> None:
        if self.finding.evidence.get("collator") not in (None, "pad_sequence"):
            super().plan()


@fixes("DIM017")
class PadVocabulary(_WithArgument):
    """Resize the vocabulary to a multiple of 64."""

    value = "64"

    def plan(self) -> None:
        self.name = str(self.finding.evidence["argument"])
        super().plan()


@fixes("RUN008")
class CopyAsynchronously(_WithArgument):
    """Copy from pinned memory without waiting."""

    name = "non_blocking"
    safety = "safe"

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None or not is_attribute(call.func, "cuda", "to"):
            return  # the finding is at the loader, and the copies are in another file
        self.change_alike(self.pass_to)


@fixes("RUN011")
class GradientsToNone(Codemod):
    """Remove set_to_none=False; the default frees the gradients instead of filling them with zeros."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is None:
            return
        given = keyword(call, "set_to_none")
        if given is None and len(call.args) == 1 and not (call.args[0].keyword or call.args[0].star):
            given = call.args[0]
        if given is not None and is_false(given):
            unwanted = given
            self.change(call, lambda call: remove_argument(call, unwanted))


@fixes("RUN015")
class CreateOnDevice(Codemod):
    """Turn `torch.rand(8).to(device)` into `torch.rand(8, device=device)`."""

    def plan(self) -> None:
        self.change_alike(self._create)

    def _create(self, call: cst.Call) -> bool:
        """Change one copy; False if it cannot be."""
        method = call.func
        if not is_attribute(method, "to", "cuda") or any(item.keyword for item in call.args):
            return False
        made = method.value
        if not isinstance(made, cst.Call) or made.lpar or keyword(made, "device") is not None:
            return False
        if method.attr.value == "cuda" and not call.args:
            device = f"{self.program.quote}cuda{self.program.quote}"
        elif method.attr.value == "to" and len(call.args) == 1 and _is_device(call.args[0].value):
            device = self.program.code(call.args[0].value)
        else:
            return False
        copy = call.with_changes(func=method.with_changes(value=cst.Name("x")))
        if has_comment(copy):
            return False  # it would be lost
        self.change(call, lambda _: append_argument(made, f"device={device}"))
        return True


def _is_device(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.SimpleString) or dotted_name(value).endswith("device")
