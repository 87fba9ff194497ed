"""Calls that have to say more once a size has grown: attention its scale, a padded head its classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tclint.core.finding import Edit
from tclint.engine.check import relative_path
from tclint.engine.fixes.plan import ByHand
from tclint.graph.ops import Graph, Op, Site, TensorSpec

_MOST_STEPS = 8
_PRODUCTS = frozenset({"linear", "matmul", "conv"})


@dataclass(frozen=True, slots=True)
class _Call:
    """A call in a file, in lines and characters."""

    node: ast.Call
    path: str
    end: tuple[int, int]
    last: str
    """The last character before the closing bracket that is no white space."""


def calls_to_adapt(
    before: Graph, after: Graph, texts: Mapping[str, str]
) -> tuple[tuple[Edit, ...], tuple[ByHand, ...]]:
    """Edits of calls that rest on a size that grew, and what of that has to be done by hand.

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
            by_hand[_at(site, what, texts)] = None
    for op, axis, size in _padded_heads(before, after):
        edit = _cut(op, axis, size, texts)
        if edit is not None:
            edits[edit] = None
        else:
            site = op.call_site or op.construct_site
            what = f"cut what {op.module_path or op.name} makes to the first {size} entries before the loss"
            by_hand[_at(site, what, texts)] = None
    return tuple(edits), tuple(by_hand)


def is_cut(edit: Edit) -> bool:
    """Whether an edit of these cuts a padded output back."""
    return edit.replacement.startswith("[")


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
        position += 1
    if position != len(padded.ops):
        return f"{padded.ops[position].name} is missing"
    if {item.name: item.shape for item in padded.parameters} != {
        item.name: item.shape for item in cut.parameters
    }:
        return "other parameters"
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
    if site is None or len(sizes) != 1:
        return None
    calls = [
        call
        for call in _calls(site, texts)
        if _name(call.node) == "scaled_dot_product_attention"
        and not any(keyword.arg in ("scale", None) for keyword in call.node.keywords)
    ]
    if len(calls) != 1:
        return None
    [call] = calls
    place = (call.end[0], call.end[1] - 1)
    comma = " " if call.last == "," else ", "
    return Edit(call.path, place, place, f"{comma}scale={sizes.pop()} ** -0.5")


def _padded_heads(before: Graph, after: Graph) -> Iterator[tuple[Op, int, int]]:
    """Products that make more outputs than the model has, the axis of these, and how many it has."""
    starts = [(old, new) for old, new in zip(before.outputs, after.outputs, strict=True)]
    for mine, op in zip(before.ops, after.ops, strict=True):
        if mine.kind == "loss" and mine.inputs:
            starts.append((mine.inputs[0], op.inputs[0]))
    heads: dict[int, Op] = {}
    for old, new in starts:
        if old.shape != new.shape:
            heads.update((op.index, op) for op in _heads(before, after, old))
    for head in heads.values():
        was, now = head.outputs[0].shape, after.ops[head.index].outputs[0].shape
        axes = [axis for axis, (a, b) in enumerate(zip(was, now, strict=True)) if a != b]
        if len(axes) == 1:
            yield head, axes[0] - len(was) if axes[0] == len(was) - 1 else axes[0], was[axes[0]]


def _heads(before: Graph, after: Graph, spec: TensorSpec, depth: int = 0) -> Iterator[Op]:
    """The products behind a tensor whose own outputs grow."""
    if spec.producer is None or depth == _MOST_STEPS:
        return
    op = before.ops[spec.producer]
    if op.outputs[spec.output_index].shape == after.ops[op.index].outputs[spec.output_index].shape:
        return
    if op.kind in _PRODUCTS:
        yield op
        return
    for source in op.inputs:
        yield from _heads(before, after, source, depth + 1)


def _cut(op: Op, axis: int, size: int, texts: Mapping[str, str]) -> Edit | None:
    site, name = op.call_site, op.module_path.rpartition(".")[2]
    if site is None or not name:
        return None
    calls = [call for call in _calls(site, texts) if _name(call.node) == name]
    if len(calls) != 1:
        return None
    [call] = calls
    index = f"[..., :{size}]" if axis < 0 else f"[{':, ' * axis}:{size}]"
    return Edit(call.path, call.end, call.end, index)


def _calls(site: Site, texts: Mapping[str, str]) -> Iterator[_Call]:
    """Calls that stand on a line, or on lines around it."""
    text = texts.get(site.path)
    if text is None:
        return
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.lineno <= site.line <= (node.end_lineno or 0):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            column = len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()) + 1
            head = "\n".join([*lines[: node.end_lineno - 1], lines[node.end_lineno - 1][: column - 2]])
            yield _Call(node, site.path, (node.end_lineno, column), head.rstrip()[-1:])


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _at(site: Site | None, what: str, texts: Mapping[str, str]) -> ByHand:
    if site is None:
        return ByHand(what)
    lines = texts.get(site.path, "").split("\n")
    text = lines[site.line - 1].strip() if 0 < site.line <= len(lines) else ""
    return ByHand(what, relative_path(site.path), site.line, text)
