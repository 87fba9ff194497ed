"""Changes the imports of a file as a codemod asks: with libcst's codemods, which take long to import."""

from __future__ import annotations

import libcst as cst
from libcst.codemod.visitors import AddImportsVisitor, RemoveImportsVisitor

from tclint.edits.codemod import Codemod
from tclint.edits.statements import Gone, KeepsComments


def changes_imports(codemod: Codemod) -> bool:
    """Whether a codemod adds an import, or may orphan one to which only the changed code refers."""
    scratch = codemod.context.scratch
    if AddImportsVisitor.CONTEXT_KEY in scratch:
        return True
    unwanted = {name or obj for _, obj, name in scratch.get(RemoveImports.CONTEXT_KEY, ()) if obj is not None}
    return not all(codemod.program.is_used_outside(name, codemod.changed) for name in unwanted)


def with_imports(codemod: Codemod, tree: cst.Module) -> cst.Module:
    """The changed tree with the imports that the codemod adds and without those that it orphans."""
    for visitor in (RemoveImports, AddImportsVisitor):
        if visitor.CONTEXT_KEY in codemod.context.scratch:
            tree = visitor(codemod.context).transform_module(tree)
    return tree


class RemoveImports(KeepsComments, RemoveImportsVisitor):
    """Removes unused imports of names as libcst does, but keeps modules, whose import may have effects."""

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:  # noqa: ARG002
        return updated_node

    def leave_ImportFrom(  # type: ignore[override]  # any small statement may take its place
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | Gone:
        left = super().leave_ImportFrom(original_node, updated_node)
        return Gone() if isinstance(left, cst.RemovalSentinel) else left
