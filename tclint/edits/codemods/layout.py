"""Fixes for memory formats."""

from __future__ import annotations

import libcst as cst
from libcst.metadata import ScopeProvider

from tclint.edits.codemod import Codemod, append_argument, fixes, keyword
from tclint.edits.program import find_all, is_attribute
from tclint.source.syntax.expressions import dotted_name


@fixes("FMT002")
class AssignConverted(Codemod):
    """Turn `x.to(memory_format=...)` into `x = x.to(memory_format=...)`."""

    def plan(self) -> None:
        call = self.find(cst.Call)
        statement = self.program.parent(call) if call is not None else None
        if call is None or not isinstance(statement, cst.Expr) or not isinstance(call.func, cst.Attribute):
            return
        target = call.func.value
        if not isinstance(target, cst.BaseAssignTargetExpression):
            return
        named: cst.CSTNode = target
        match target:
            case cst.Subscript(value=indexed, slice=[cst.SubscriptElement(slice=cst.Index(value=index))]):
                if isinstance(index, cst.Name | cst.SimpleString | cst.Integer):
                    named = indexed
        if not dotted_name(named) or (
            isinstance(target, cst.Name) and not self._is_local(call, target.value)
        ):
            return
        # Other arguments also move or cast, which had no effect without the assignment.
        self.safety = "safe" if len(call.args) == 1 and call.args[0].keyword else "unsafe"
        self.change(
            statement, lambda line: cst.Assign([cst.AssignTarget(target)], line.value, line.semicolon)
        )

    def _is_local(self, node: cst.CSTNode, name: str) -> bool:
        """Whether an assignment at a node would bind the same variable, in the same scope."""
        scope = self.program.wrapper.resolve(ScopeProvider)[node]
        return scope is not None and any(binding.scope is scope for binding in scope[name])


@fixes("FMT005")
class FormatOfTheRank(Codemod):
    """Write the format that fits the dims: `torch.channels_last` or `torch.channels_last_3d`."""

    safety = "safe"

    def plan(self) -> None:
        evidence, call = self.finding.evidence, self.find(cst.Call)
        replacement = evidence["replacement"]
        if call is None or not isinstance(replacement, str):
            return
        formats = find_all(call, cst.Attribute)
        formats = [node for node in formats if node.attr.value == evidence["memory_format"]]
        if len(formats) == 1:
            self.rewrite(formats[0].attr, replacement)


@fixes("FMT007")
class ConvertWithTo(Codemod):
    """Turn `.contiguous(memory_format=...)` into `.to(memory_format=...)`."""

    safety = "safe"

    def plan(self) -> None:
        call = self.find(cst.Call)
        if call is not None and keyword(call, "memory_format") and is_attribute(call.func, "contiguous"):
            self.rewrite(call.func.attr, "to")


class _ToChannelsLast(Codemod):
    """The base of the codemods below."""

    def plan(self) -> None:
        if self.program.torch is not None:
            self.convert(f"memory_format={self.program.torch}.channels_last")

    def convert(self, argument: str) -> None:
        raise NotImplementedError

    def convert_batch(self, copy: cst.Call | None, argument: str) -> None:
        if copy is not None and is_attribute(copy.func, "to", "cuda") and not keyword(copy, "memory_format"):
            self.change(copy, lambda call: append_argument(call, argument))

    def convert_model(self, made: cst.BaseExpression, argument: str) -> None:
        method = cst.parse_expression(f"model.to({argument})")
        receiver = cst.ensure_type(cst.ensure_type(method, cst.Call).func, cst.Attribute).value

        def converted(model: cst.BaseExpression) -> cst.BaseExpression:
            # Parentheses around a model of several lines enclose the method as well.
            bare = method.deep_replace(receiver, model.with_changes(lpar=(), rpar=()))
            return cst.ensure_type(bare, cst.Call).with_changes(lpar=model.lpar, rpar=model.rpar)

        self.change(made, converted)


@fixes("FMT003")
class ConvertBatch(_ToChannelsLast):
    """Turn `images.to(device)` into `images.to(device, memory_format=torch.channels_last)`."""

    def convert(self, argument: str) -> None:
        self.convert_batch(self.find(cst.Call), argument)


@fixes("FMT004")
class ConvertModel(_ToChannelsLast):
    """Convert the model where the file makes it."""

    def convert(self, argument: str) -> None:
        made = self.program.assigned(str(self.finding.evidence.get("model")))
        if len(made) == 1 and isinstance(made[0].value, cst.Call):
            self.convert_model(made[0].value, argument)


_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "DDP", "DP", "convert_sync_batchnorm"})
_RETURN_THEMSELVES = frozenset({"cuda", "to", "train", "float", "requires_grad_"})


@fixes("FMT001")
class ConvertModelAndBatch(_ToChannelsLast):
    """Convert the model where the file makes it, and the batch where it is copied to the GPU."""

    def convert(self, argument: str) -> None:
        made, evidence = self.find(cst.Call), self.finding.evidence
        statement = self.program.statement(made) if made is not None else None
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            return
        if not evidence.get("made_in_one_place") or evidence.get("views"):
            return
        if not dotted_name(statement.targets[0].target) or not _holds(statement.value, made):
            return
        self.convert_model(statement.value, argument)
        for related in self.finding.related:
            self.convert_batch(self.program.find(related.location, cst.Call), argument)


def _holds(value: cst.BaseExpression, made: cst.Call | None) -> bool:
    """Whether a value is the model, possibly moved or wrapped: `nn.DataParallel(Net()).cuda()`."""
    while value is not made:
        if not isinstance(value, cst.Call):
            return False
        if dotted_name(value.func).rpartition(".")[2] in _WRAPPERS and value.args:
            value = value.args[0].value
        elif isinstance(value.func, cst.Attribute) and value.func.attr.value in _RETURN_THEMSELVES:
            value = value.func.value
        else:
            return False
    return True
