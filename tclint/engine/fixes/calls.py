"""Calls that have to say more once a size has grown: attention its scale, a padded head its classes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from tclint.core.finding import Edit
from tclint.edits.sizes.cuts import Head, NoCut, cut_back, head_name
from tclint.edits.sizes.syntax import calls_on, end_of, function_at, last_name, parsed, start_of
from tclint.edits.sizes.unrun import UnrunCode
from tclint.edits.sizes.written import Written
from tclint.engine.fixes.plan import ByHand
from tclint.engine.fixes.search import Trial
from tclint.engine.fixes.shown import line_at, places_text
from tclint.graph.dims.outputs import padded_heads
from tclint.graph.dims.realized import other_setting
from tclint.graph.ops import Graph, Site


def scaled_attention(
    before: Graph, after: Graph, texts: Mapping[str, str]
) -> tuple[tuple[Edit, ...], tuple[ByHand, ...]]:
    """Edits that give attention the scale of its heads as they were, and what of that is left to do by hand.

    Args:
        before: the model as it is.
        after: the same ops at larger sizes.
        texts: the files that may be edited, by absolute path.
    """
    edits: dict[Edit, None] = {}
    by_hand: dict[ByHand, None] = {}
    for site, sizes in _attention_heads(before, after).items():
        edit = _with_scale(site, sizes, texts)
        if edit is not None:
            edits[edit] = None
        else:
            heads = ", ".join(f"1/sqrt({size})" for size in sorted(sizes))
            what = f"give attention here the scale of the old heads ({heads}): its own follows the new ones"
            by_hand[ByHand(what, *line_at(site.path, site.line)) if site else ByHand(what)] = None
    return tuple(edits), tuple(by_hand)


def cut_edits(
    before: Graph, after: Graph, trial: Trial, texts: Mapping[str, str], unrun: UnrunCode
) -> tuple[Edit, ...]:
    """Edits that cut padded outputs back to the sizes that they had.

    Args:
        before: the model as it is.
        after: the same ops at larger sizes, as predicted.
        trial: the arguments of layers that were edited for these.
        texts: the files that may be edited, by absolute path.
        unrun: code that the trace did not run.

    Raises:
        NoCut: one cannot be cut back.
    """
    edits: dict[Edit, None] = {}
    contiguous = bool(unrun.flattened())
    for op, axis in padded_heads(before, after):
        made, called, name = op.construct_site, op.call_site, head_name(op.module_path)
        text = texts.get(called.path) if called is not None else None
        if made is None or called is None or text is None or made.path != called.path or not name:
            raise NoCut(f"no file of yours both builds and calls the layer '{op.module_path or op.name}'")
        own = _output_argument(text, made.line, [it.written for it in trial if it.written.path == made.path])
        if own is None:
            raise NoCut
        head = Head(name, made.path, made.line, called.line, axis, own)
        edits.update(dict.fromkeys(cut_back(head, text, contiguous=contiguous)))
        function = function_at(text, called.line)
        owner = function[1] if function is not None else None
        others = unrun.uses_of(name, owner.name if owner is not None else "", calls=True)
        if others:
            raise NoCut(f"{name} is used at {places_text(others)} too")
    if not edits:
        raise NoCut("where it makes them is not found")
    return tuple(edits)


def _output_argument(text: str, line: int, edited: Sequence[Written]) -> str | None:
    """The edited argument, at a line that constructs a layer, that says how many outputs it has."""
    starts = {written.start: written.text for written in edited}
    found: dict[str, None] = {}
    for call in calls_on(text, line):
        keywords = [word.value for word in call.keywords if (word.arg or "").startswith("out")]
        if keywords or len(call.args) > 1:
            argument = (keywords or call.args[1:])[0]
            start = start_of(text, argument)
            if start in starts:
                found[starts[start]] = None
    return next(iter(found)) if len(found) == 1 else None


def other_than_cut(base: Graph, padded: Graph, cut: Graph) -> str | None:
    """In what a model whose outputs are cut back differs from the padded one, but for that; None: in nothing.

    Ops behind a cut have the size that it leaves.
    """
    names = {"slice", "clone", "contiguous"}
    position = 0
    cuts: set[tuple[int, int]] = set()
    for op in cut.ops:
        known = padded.ops[position] if position < len(padded.ops) else None
        if known is None or op.name != known.name:
            if op.name in names:
                cuts.update(zip(op.inputs[0].shape, op.outputs[0].shape, strict=False))
                continue
            return f"{op.name} in {op.module_path or 'the model'} is new"
        mine, theirs = ([spec.shape for spec in (*one.inputs, *one.outputs)] for one in (op, known))
        if [len(shape) for shape in mine] != [len(shape) for shape in theirs] or any(
            own != new and (new, own) not in cuts
            for shape, other in zip(mine, theirs, strict=True)
            for own, new in zip(shape, other, strict=True)
        ):
            return f"{op.name} in {op.module_path or 'the model'} has other shapes"
        setting = other_setting(known, op)
        if setting is not None:
            return f"{op.name} in {op.module_path or 'the model'} has another {setting}"
        position += 1
    if position != len(padded.ops):
        op = padded.ops[position]
        return f"{op.name} in {op.module_path or 'the model'} is missing"
    if {item.name: item.shape for item in padded.parameters} != {
        item.name: item.shape for item in cut.parameters
    }:
        return "the model has other parameters"
    if [spec.shape for spec in base.outputs] != [spec.shape for spec in cut.outputs]:
        return "the model returns other shapes than before"
    return None


def _attention_heads(before: Graph, after: Graph) -> dict[Site | None, set[int]]:
    """By line: sizes of heads that grow there, where attention takes its scale from them."""
    found: dict[Site | None, set[int]] = {}
    grown: set[Site | None] = set()
    for mine, op in zip(before.ops, after.ops, strict=True):
        query, new = mine.input("query"), op.input("query")
        if (
            mine.kind != "attention"
            or query is None
            or new is None
            or mine.attributes.get("scale") is not None
        ):
            continue
        found.setdefault(mine.call_site, set()).add(query.shape[-1])
        if query.shape[-1] != new.shape[-1]:
            grown.add(mine.call_site)
    return {site: found[site] for site in found if site in grown}


def _with_scale(site: Site | None, sizes: set[int], texts: Mapping[str, str]) -> Edit | None:
    text = texts.get(site.path) if site is not None else None
    if site is None or text is None or len(sizes) != 1:
        return None
    calls = [
        node
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Call)
        and node.lineno <= site.line <= (node.end_lineno or 0)
        and last_name(node.func) == "scaled_dot_product_attention"
        and not any(keyword.arg in ("scale", None) for keyword in node.keywords)
    ]
    if len(calls) != 1:
        return None
    line, column = end_of(text, calls[0])
    lines = text.split("\n")[:line]
    lines[-1] = lines[-1][: column - 2]
    has_comma = "\n".join(lines).rstrip().endswith(",")
    place = (line, column - 1)
    return Edit(site.path, place, place, f"{' ' if has_comma else ', '}scale={sizes.pop()} ** -0.5")
