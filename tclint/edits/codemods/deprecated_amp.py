"""Fix that turns torch.cuda.amp into torch.amp in calls, decorators, annotations and imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import libcst as cst

from tclint.core.finding import Finding
from tclint.edits.codemod import Codemod, append_argument, fixes, positional, prepend_argument
from tclint.edits.program import Program, find_all, imported_name, is_attribute, is_name
from tclint.source.project.requirements import oldest
from tclint.source.syntax.expressions import dotted_name

_OLD = "torch.cuda.amp"
_NAMES = frozenset(("autocast", "GradScaler", "custom_fwd", "custom_bwd"))
_AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")
_SINCE = {"autocast": (1, 10), "GradScaler": (2, 3), "custom_fwd": (2, 4), "custom_bwd": (2, 4)}
"""The version of torch that brought torch.amp's names; torch.cuda.amp warns since 2.4."""

_Import: TypeAlias = cst.Import | cst.ImportFrom
_Use: TypeAlias = cst.Name | cst.Attribute
_Plan: TypeAlias = list[tuple[cst.CSTNode, Callable[[Any], Any]]]
"""Nodes with the functions that change them."""


@fixes("AMP014")
class ModernAmp(Codemod):
    """Rewrite all uses that the finding names, and their imports."""

    def __init__(self, program: Program, finding: Finding) -> None:
        super().__init__(program, finding)
        self._renamed: set[str] = set()

    def plan(self) -> None:
        if "set_autocast" in self.program.text:
            return  # another default dtype is set somewhere
        places = {(self.finding.location.line, self.finding.location.column - 1)} | {
            (related.location.line, related.location.column - 1)
            for related in self.finding.related
            if related.is_alike
        }
        by_root: dict[str, list[_Use]] = {}
        for use in self._all_uses():
            by_root.setdefault(dotted_name(use).split(".")[0], []).append(use)
        statements: list[_Import] = [*self.program.every(cst.Import), *self.program.every(cst.ImportFrom)]
        for statement in statements:
            uses = [use for root in sorted(_names_bound(statement)) for use in by_root.get(root, ())]
            fresh = [use for use in uses if use not in self._touched]
            if not fresh or not any(self._is_at(use, places) for use in fresh):
                continue
            kept = [use for use in fresh if self._rewritten(use) and not self._is_at(use, places)]
            if all(dotted_name(use).count(".") == 3 for use in uses):
                self._modernise_through_torch([use for use in fresh if use not in kept])
            elif not kept:  # a use that is silenced, or meant for an older torch, needs the import
                self._modernise(statement, uses)
        self.safety = "safe" if self._is_safe() else "unsafe"

    def _is_safe(self) -> bool:
        """Whether no requirement file lets a torch be installed that lacks the new names."""
        version = oldest(self.finding.location.path)
        return version is None or all(version >= _SINCE[name] for name in self._renamed)

    def _all_uses(self) -> list[_Use]:
        """The uses of names of torch.cuda.amp through an import: `autocast`, or `amp.autocast`."""
        uses: list[_Use] = [*self.program.every(cst.Name), *self.program.every(cst.Attribute)]
        return [use for use in uses if self._old_name(use) in _NAMES and not self.program.is_in_import(use)]

    def _old_name(self, use: cst.CSTNode) -> str:
        """The name in torch.cuda.amp that a node means, such as 'autocast'; '' for others."""
        module, _, name = self.program.qualified(use).rpartition(".")
        return name if module == _OLD else ""

    def _is_at(self, use: _Use, places: set[tuple[int, int]]) -> bool:
        """Whether a use is at one of the places: its name, its call, or the function that it decorates."""
        outer = self.program.parent(use)
        if isinstance(outer, cst.Arg):
            outer = self.program.parent(outer)
        starts = {self.program.start(use)}
        for around in (outer, *(self.program.ancestors(outer) if outer is not None else ())):
            if isinstance(around, cst.Decorator):
                function = self.program.parent(around)
                if isinstance(function, cst.FunctionDef | cst.ClassDef):
                    starts.add(self.program.start(function.name))
            if isinstance(around, cst.BaseCompoundStatement):
                break
            starts.add(self.program.start(around))
        return bool(starts & places)

    # -- imports

    def _modernise_through_torch(self, uses: list[_Use]) -> None:
        """Turn `torch.cuda.amp.autocast` into `torch.amp.autocast` in all known kinds of uses."""
        plans = {use: plan for use in uses if (plan := self._rewritten(use)) is not None}
        for use, plan in plans.items():
            self._apply(use, plan)
            self.change(cst.ensure_type(use, cst.Attribute).value, _without_cuda)
        module_names = [
            node
            for node in self.program.every(cst.Attribute)
            if self.program.qualified(node) == _OLD and not self.program.is_in_import(node)
        ]
        if plans and len(plans) == len(module_names):
            # `import torch.cuda.amp` served only these uses.
            for alias in self.program.every(cst.ImportAlias):
                if alias.evaluated_name == _OLD and alias.asname is None:
                    self.rewrite(alias.name, "torch.amp")

    def _modernise(self, statement: _Import, uses: list[_Use]) -> None:
        """Rewrite an import with all of its uses, or do nothing."""
        names = _names_bound(statement)
        if not isinstance(self.program.enclosing(statement), cst.Module | cst.FunctionDef):
            return
        # Other files may import the name from this one and call it the old way.
        if any(text.raw_value in names for text in self.program.every(cst.SimpleString)):
            return
        aliases = find_all(statement, cst.ImportAlias)
        old = [alias for alias in aliases if imported_name(statement, alias) in _OLD_NAMES]
        reads = [self._reads(alias, imported_name(statement, alias)) for alias in old]
        if not all(reads) or sum(map(len, reads)) != len(uses):
            return
        plans = [self._rewritten(use) for use in uses]
        partly = isinstance(statement, cst.ImportFrom) and len(old) != len(aliases)
        if None in plans or (partly and imported_name(statement, old[0]) != _OLD):
            return
        for use, plan in zip(uses, plans, strict=True):
            self._apply(use, plan or [])
        if isinstance(statement, cst.Import):
            for alias in old:
                self.rewrite(alias.name, "torch.amp")
        elif not partly:
            assert statement.module is not None
            new = "torch.amp" if dotted_name(statement.module) == _OLD else "torch"
            self.rewrite(statement.module, new)
        else:
            renamed = f" as {old[0].evaluated_alias}" if old[0].asname else ""
            self.insert_before(statement, f"from torch import amp{renamed}")
            left = [alias for alias in aliases if alias is not old[0]]
            if old[0] is aliases[-1]:
                left[-1] = left[-1].with_changes(comma=old[0].comma)
            self.change(statement, lambda line: line.with_changes(names=left))

    def _reads(self, alias: cst.ImportAlias, full_name: str) -> list[cst.BaseExpression]:
        name = alias.evaluated_alias or alias.evaluated_name
        found = self.program.loads(self.program.module, name)
        return [read for read in found if self.program.qualified(read) == full_name]

    # -- uses

    def _apply(self, use: _Use, plan: _Plan) -> None:
        self._renamed.add(self._old_name(use))
        self._touch(use)
        for node, make in plan:
            self.change(node, make)

    def _rewritten(self, use: _Use) -> _Plan | None:
        """The changes for a use of a name of torch.cuda.amp; None if the kind of use is unknown."""
        name = self._old_name(use)
        outer = self.program.parent(use)
        cuda = f"{self.program.quote}cuda{self.program.quote}"
        if isinstance(outer, cst.Call) and outer.func is use:
            return self._rewritten_call(outer, name, cuda)
        if name in ("custom_fwd", "custom_bwd") and isinstance(outer, cst.Decorator):
            return [(use, lambda used: append_argument(cst.Call(used), f"device_type={cuda}"))]
        if name == "autocast" and isinstance(outer, cst.Arg):
            # `partial(autocast, True)` binds a position that would change.
            call = self.program.parent(outer)
            if isinstance(call, cst.Call) and _is_partial(call.func) and positional(call) == [outer]:
                return [(outer, lambda bound: cst.FlattenSentinel(_followed_by(bound, cuda)))]
            return None
        return [] if name == "GradScaler" and self._is_only_named(use) else None

    def _rewritten_call(self, call: cst.Call, name: str, cuda: str) -> _Plan | None:
        given = positional(call)
        if name == "GradScaler":
            return [(call, lambda call: prepend_argument(call, cuda))]
        if name != "autocast":
            add = append_argument if given else prepend_argument
            return [(call, lambda call: add(call, f"device_type={cuda}"))]
        if any(item.star for item in given) or len(given) > len(_AUTOCAST_PARAMETERS):
            return None
        # Positional arguments get keywords, since the order of the parameters has changed.
        named: _Plan = [
            (item, _named(parameter)) for item, parameter in zip(given, _AUTOCAST_PARAMETERS, strict=False)
        ]
        return [*named, (call, lambda call: prepend_argument(call, cuda))]

    def _is_only_named(self, use: _Use) -> bool:
        """Whether a use only names the class, in an annotation or for isinstance."""
        child: cst.CSTNode = use
        for outer in self.program.ancestors(use):
            if isinstance(outer, cst.Annotation):
                return True
            if isinstance(outer, cst.Call):
                return is_name(outer.func, "isinstance") and child in outer.args[1:]
            if isinstance(outer, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                return False
            child = outer
        return False


_OLD_NAMES = frozenset((_OLD, *(f"{_OLD}.{name}" for name in _NAMES)))


def _is_partial(function: cst.BaseExpression) -> bool:
    return is_name(function, "partial") or is_attribute(function, "partial")


def _names_bound(statement: _Import) -> set[str]:
    return {
        (alias.evaluated_alias or alias.evaluated_name).split(".")[0]
        for alias in find_all(statement, cst.ImportAlias)
    }


def _without_cuda(module: cst.BaseExpression) -> cst.BaseExpression:
    """The module without its `cuda` part: `torch.amp` for `torch.cuda.amp`."""
    amp = cst.ensure_type(module, cst.Attribute)
    return amp.with_changes(value=cst.ensure_type(amp.value, cst.Attribute).value)


def _named(parameter: str) -> Callable[[cst.Arg], cst.Arg]:
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return lambda item: item.with_changes(keyword=cst.Name(parameter), equal=equal)


def _followed_by(bound: cst.Arg, code: str) -> list[cst.Arg]:
    space = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return [bound.with_changes(comma=space), cst.Arg(cst.parse_expression(code), comma=bound.comma)]
