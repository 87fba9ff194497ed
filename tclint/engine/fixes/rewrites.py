"""Edits of fixes that change no size: codemods of source rules, and what the target's function returns."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from tclint.config.settings import Settings
from tclint.core.finding import Edit, Finding
from tclint.edits import with_fixes
from tclint.edits.sizes.candidates import FileLine
from tclint.edits.sizes.syntax import end_of, parsed, start_of
from tclint.engine.check import relative_path
from tclint.engine.fixes.shown import places_text
from tclint.engine.rules.registry import Selection
from tclint.engine.sources.lint import lint
from tclint.graph.ops import Site
from tclint.source.source_rule import SourceRule

_BY_CODEMOD = {
    "ARC001": "a call of the layer without `bias` and `*arguments`, whose output goes to its norm alone, in "
    "a file that neither loads published weights nor reads `.bias`",
    "ARC005": "successive statements of one function: `q @ k.transpose(-2, -1)`, a scale, a causal mask or "
    "none, `softmax` over the last dim, a dropout and `@ v`, of which no other line reads a result",
}
"""Rules of traced models whose source rule has a codemod, and what its edit needs."""
_RETURNED = {
    "FMT001": ("", ".to(memory_format=torch.channels_last)"),
    "ARC008": ("torch.compile(", ")"),
    "ARC016": ("torch.compile(", ")"),
}
"""What is put around the model that the target's function returns."""
NO_EDIT = "there is no edit for it: the finding says what to do"


def rewrites(
    finding: Finding,
    places: Collection[FileLine],
    root: Site | None,
    texts: Mapping[str, str],
    settings: Settings,
) -> tuple[Edit, ...] | str:
    """The edits that make a fix; else why there are none.

    Args:
        finding: of a traced model.
        places: lines of the layers that it speaks of.
        root: where the target's callable is defined.
        texts: the files that may be edited, by absolute path.
        settings: of the run.
    """
    if finding.code in _RETURNED:
        return _around_what_is_returned(finding.code, root, texts)
    if finding.code in _BY_CODEMOD:
        return _by_codemod(finding.code, places, texts, settings)
    return NO_EDIT


def _by_codemod(
    code: str, places: Collection[FileLine], texts: Mapping[str, str], settings: Settings
) -> tuple[Edit, ...] | str:
    files = [path for path in texts if path.endswith(".py") and any(path == place[0] for place in places)]
    rules = [rule for rule in Selection(settings).rules if isinstance(rule, SourceRule) and rule.code == code]
    if not files or not rules:
        return "no file of yours builds these layers"
    found = lint(files, rules, settings, finish=with_fixes).findings
    edits: dict[Edit, None] = {}
    for finding in found:
        lines = {(finding.location.path, finding.location.line)}
        lines |= {(item.location.path, item.location.line) for item in finding.related}
        if finding.fix is not None and lines & set(places):
            edits.update(dict.fromkeys(finding.fix.edits))
    if edits:
        return tuple(edits)
    written = sorted(place for place in places if place[0] in files)
    return f"its edit needs {_BY_CODEMOD[code]}; {places_text(written)} differs"


def _around_what_is_returned(
    code: str, root: Site | None, texts: Mapping[str, str]
) -> tuple[Edit, ...] | str:
    text = texts.get(root.path) if root is not None else None
    if root is None or text is None:
        return "no function of yours builds the model"
    tree = parsed(text)
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and min([node.lineno, *(item.lineno for item in node.decorator_list)]) <= root.line <= node.lineno
    ]
    imports_torch = any(
        isinstance(node, ast.Import) and any(item.name == "torch" and not item.asname for item in node.names)
        for node in tree.body
    )
    if not functions:
        return "the target is not a function that returns the model, so no line of it can be wrapped"
    if not imports_torch:
        return f"{relative_path(root.path)} does not import torch by that name"
    returned = [
        node.value
        for node in ast.walk(functions[0])
        if isinstance(node, ast.Return) and node.value is not None
    ]
    if len(returned) != 1:
        places = places_text(sorted((root.path, it.lineno) for it in returned))
        return f"the target's function has to return at one line, but returns at {places or 'none'}"
    [model] = returned
    if isinstance(model, ast.Tuple) and model.elts:
        model = model.elts[0]
    before, after = _RETURNED[code]
    if not before and not isinstance(model, ast.Call | ast.Name | ast.Attribute):
        before, after = "(", ")" + after
    start, end = start_of(text, model), end_of(text, model)
    edits = [Edit(root.path, start, start, before), Edit(root.path, end, end, after)]
    return tuple(edit for edit in edits if edit.replacement)
