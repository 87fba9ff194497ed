"""Recognises causal masks in source: they hide from every token the later ones and nothing else."""

from __future__ import annotations

from typing import Literal

import libcst as cst

from tclint.edits.program import Program
from tclint.source.syntax.expressions import dotted_name

Part = Literal["later", "earlier"]
"""The entries of a square of tokens by tokens that are True or nonzero: those above the diagonal, or the
others."""
_OTHER: dict[Part, Part] = {"later": "earlier", "earlier": "later"}
_KEPT = frozenset({"bool", "to", "type", "unsqueeze", "view", "reshape", "expand", "cuda", "float", "int"})
"""Methods whose result is the same square, of another type or with more dims."""
_LARGEST = -1e4
"""A number this low, added to the scores of hidden tokens, makes their weights zero in every precision."""


def hides_later_tokens(program: Program, mask: cst.BaseExpression) -> bool:
    """Whether a mask is True exactly for later tokens, that is, causal.

    False if the mask is a parameter, or if its file does not show how it is made.
    """
    return _part(program, mask, depth=8) == "later"


def is_minus_infinity(value: cst.BaseExpression) -> bool:
    """Whether a value is -inf or a number so low that softmax makes it zero."""
    match value:
        case cst.Call(func=cst.Name(value="float"), args=[cst.Arg(value=cst.SimpleString() as text)]):
            return text.raw_value.lower() in ("-inf", "-infinity")
        case cst.UnaryOperation(operator=cst.Minus(), expression=cst.Attribute() as name):
            return dotted_name(name) in ("torch.inf", "math.inf", "np.inf", "numpy.inf")
        case cst.UnaryOperation(operator=cst.Minus(), expression=cst.Call() as call):
            match call:
                case cst.Call(func=cst.Name(value="float"), args=[cst.Arg(value=cst.SimpleString() as text)]):
                    return text.value in ("'inf'", '"inf"')
        case cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer() | cst.Float() as number):
            return -number.evaluated_value <= _LARGEST
        case cst.Attribute(value=cst.Call() as call, attr=cst.Name(value="min")):
            return dotted_name(call.func) == "torch.finfo"
    return False


def _part(program: Program, value: cst.BaseExpression, depth: int) -> Part | None:
    if depth == 0:
        return None
    match value:
        case cst.Name() | cst.Attribute():
            return _of_name(program, value, depth)
        case cst.UnaryOperation(operator=cst.BitInvert(), expression=inner):
            part = _part(program, inner, depth - 1)
            return _OTHER[part] if part is not None else None
        case cst.Comparison(
            left=left, comparisons=[cst.ComparisonTarget(operator=operator, comparator=right)]
        ):
            part = _part(program, left, depth - 1)
            compared = right.evaluated_value if isinstance(right, cst.Integer | cst.Float) else None
            if part is None or compared not in (0, 1) or not isinstance(operator, cst.Equal | cst.NotEqual):
                return None
            return part if isinstance(operator, cst.Equal) == (compared == 1) else _OTHER[part]
        case cst.Subscript(value=inner, slice=elements):
            return _part(program, inner, depth - 1) if _cuts_a_square(program, elements) else None
        case cst.Call():
            return _of_call(program, value, depth)
    return None


def _of_call(program: Program, call: cst.Call, depth: int) -> Part | None:
    name = _name(call)
    if name in ("tril", "triu"):
        method = isinstance(call.func, cst.Attribute) and not _is_torch(program, call.func.value)
        given = list(call.args)
        square = call.func.value if method and isinstance(call.func, cst.Attribute) else None
        if square is None and given:
            square = given.pop(0).value
        if square is None or not _is_square_of_ones(program, square):
            return None
        diagonal = program.code(given[0].value) if given else "0"
        return {("tril", "0"): "earlier", ("triu", "1"): "later"}.get((name, diagonal))  # type: ignore[return-value]
    if name == "logical_not":
        inner = call.args[0].value if call.args else getattr(call.func, "value", None)
        part = _part(program, inner, depth - 1) if isinstance(inner, cst.BaseExpression) else None
        return _OTHER[part] if part is not None else None
    if name in _KEPT and isinstance(call.func, cst.Attribute):
        return _part(program, call.func.value, depth - 1)
    return None


def _name(call: cst.Call) -> str:
    """The last name of a call's function."""
    function = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return dotted_name(function)


def _is_torch(program: Program, value: cst.BaseExpression) -> bool:
    return dotted_name(value) == (program.torch or "torch")


def _is_square_of_ones(program: Program, value: cst.BaseExpression) -> bool:
    """Whether a value is `torch.ones(n, n, ...)` with two equal sizes, of any dtype."""
    while isinstance(value, cst.Call) and _name(value) in _KEPT:
        value = cst.ensure_type(value.func, cst.Attribute).value
    if not isinstance(value, cst.Call) or dotted_name(value.func) != f"{program.torch or 'torch'}.ones":
        return False
    sizes: list[cst.CSTNode] = [item.value for item in value.args if item.keyword is None]
    if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
        sizes = [item.value for item in sizes[0].elements]
    *ones, rows, columns = map(program.code, sizes) if len(sizes) >= 2 else ("", "0", "1")
    return rows == columns and all(size == "1" for size in ones)


def _cuts_a_square(program: Program, elements: object) -> bool:
    """Whether an index takes the upper left corner or adds dims in front: `[:n, :n]`, `[..., :n, :n]`,
    `[None, None]`."""
    ends = []
    for element in elements if isinstance(elements, tuple | list) else ():
        match element.slice:
            case cst.Slice(lower=None, upper=upper, step=None):
                ends.append(program.code(upper) if upper is not None else "")
            case cst.Index(value=cst.Name(value="None") | cst.Ellipsis()):
                ends.append("")
            case _:
                return False
    cut = [end for end in ends if end]
    return not cut or (len(cut) == 2 and ends[-2:] == cut and cut[0] == cut[1])


def _of_name(program: Program, value: cst.Name | cst.Attribute, depth: int) -> Part | None:
    name = dotted_name(value)
    if not name or _is_written_into(program, name):
        return None
    made: list[cst.BaseExpression] = []
    if name.startswith("self."):
        made += [item.value for item in program.assigned(name)]
        made += _buffers(program, name.removeprefix("self."))
    elif isinstance(value, cst.Name):
        function = program.function(value)
        if not isinstance(function, cst.FunctionDef) or len(program.stores(function, name)) != 1:
            return None  # a parameter, or a variable that changes
        made += [item.value for item in program.assigned(name) if program.function(item) is function]
    parts = {_part(program, item, depth - 1) for item in made}
    return parts.pop() if len(parts) == 1 else None


def _is_written_into(program: Program, name: str) -> bool:
    """Whether the file anywhere writes into a name: `mask[...] = x`, `mask.logical_and_(x)`."""
    for read in program.loads(program.module, name):
        outer = program.parent(read)
        if isinstance(outer, cst.Attribute) and outer.attr.value.endswith("_"):
            return True
        while isinstance(outer, cst.Subscript):
            if isinstance(outer := program.parent(outer), cst.AssignTarget | cst.AugAssign):
                return True
    return False


def _buffers(program: Program, name: str) -> list[cst.BaseExpression]:
    """The values passed to `self.register_buffer("name", ...)` anywhere in the file."""
    found = []
    for call in program.every(cst.Call):
        if dotted_name(call.func) != "self.register_buffer" or len(call.args) < 2:
            continue
        first = call.args[0].value
        if isinstance(first, cst.SimpleString) and first.raw_value == name:
            found.append(call.args[1].value)
    return found
