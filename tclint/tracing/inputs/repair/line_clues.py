"""What a line of Python that raised tells: what it unpacked, compared or checked."""

from __future__ import annotations

import ast
import linecache
import operator
import re
from types import FrameType
from typing import Any

import torch
from torch import nn

from tclint.tracing.inputs.forward import ARITHMETIC
from tclint.tracing.inputs.repair.clues import Clues, RankClash, SizeClash, clash_of, sources_of
from tclint.tracing.inputs.uses.einops_layers import is_einops, wanted_rank

_STATED_WIDTHS = ("in_features", "in_channels", "input_size", "embed_dim", "num_features")


def from_layer(frames: list[tuple[FrameType, int]], clues: Clues) -> None:
    """RNNs, attention and norms of torch.nn check their input in Python."""
    for frame, _ in reversed(frames):
        layer = frame.f_locals.get("self")
        if isinstance(layer, nn.Module) and is_einops(layer):
            _from_pattern(layer, frame.f_locals.get("input"), clues)
            return
        if not isinstance(layer, nn.Module) or not type(layer).__module__.startswith("torch.nn"):
            continue
        names = ("input", "query", "src", "x", "hx", "tensor")
        tensor = next((t for name in names if isinstance(t := frame.f_locals.get(name), torch.Tensor)), None)
        if tensor is None:
            continue
        width = next((w for name in _STATED_WIDTHS if isinstance(w := getattr(layer, name, None), int)), None)
        if isinstance(layer, nn.RNNBase):
            if tensor.dim() not in (2, 3):
                clues.ranks.append(RankClash(3 - tensor.dim(), sources_of(tensor)))
            elif tensor.shape[-1] != layer.input_size:
                clues.sizes.append(clash_of(tensor, tensor.shape[-1], layer.input_size))
        elif isinstance(layer, nn.RNNCellBase):
            if tensor.dim() and tensor.shape[-1] != layer.input_size:
                clues.sizes.append(clash_of(tensor, tensor.shape[-1], layer.input_size))
        elif isinstance(layer, nn.MultiheadAttention):
            if tensor.dim() not in (2, 3):
                clues.ranks.append(RankClash(3 - tensor.dim(), sources_of(tensor)))
            elif width is not None and tensor.shape[-1] != width:
                clues.sizes.append(clash_of(tensor, tensor.shape[-1], width))
        elif isinstance(layer, nn.modules.batchnorm._NormBase):
            ranks = {"BatchNorm2d": 4, "BatchNorm3d": 5, "InstanceNorm2d": 4, "InstanceNorm3d": 5}
            wanted = ranks.get(type(layer).__name__, 3)
            if tensor.dim() != wanted:
                clues.ranks.append(RankClash(wanted - tensor.dim(), sources_of(tensor)))
        return


def _from_pattern(layer: nn.Module, tensor: Any, clues: Clues) -> None:
    rank = wanted_rank(layer)
    if isinstance(tensor, torch.Tensor) and rank is not None and rank != tensor.dim():
        clues.ranks.append(RankClash(rank - tensor.dim(), sources_of(tensor), is_likely=True))


def from_key(frames: list[tuple[FrameType, int]], error: BaseException, clues: Clues) -> None:
    """`self.heads[task]` with a tensor for a key tells that the task is the name of a head."""
    key = error.args[0] if isinstance(error, KeyError) and error.args else None
    sources = sources_of(key)
    if not sources:
        return
    for frame, number in reversed(frames):
        statement = _statement(frame, number)
        for node in ast.walk(statement) if statement is not None else ():
            if not isinstance(node, ast.Subscript):
                continue
            try:
                owner, asked = _value(node.value, frame), _value(node.slice, frame)
            except Exception:
                continue
            known = [name for name in owner if isinstance(name, str)] if hasattr(owner, "keys") else []
            if asked is key and known:
                clues.names = dict.fromkeys(sources, known[0])
                return


def from_line(frames: list[tuple[FrameType, int]], error: BaseException, clues: Clues) -> None:
    """`b, t, c = x.shape` and `assert x.shape[1] == 3` tell what they wanted."""
    frame, number = frames[-1]
    statement = _statement(frame, number)
    if isinstance(statement, (ast.Assert, ast.If)):
        _from_condition(statement.test, frame, clues)
    elif isinstance(statement, ast.Assign) and isinstance(error, ValueError):
        target = statement.targets[0]
        if isinstance(target, (ast.Tuple, ast.List)) and not any(
            isinstance(item, ast.Starred) for item in target.elts
        ):
            tensor = _tensor_in(statement.value, frame)
            if tensor is not None and tensor.dim() != len(target.elts):
                clues.ranks.append(RankClash(len(target.elts) - tensor.dim(), sources_of(tensor)))
    if isinstance(error, (TypeError, AttributeError)) and "Tensor" in str(error):
        clues.is_list = frozenset() if re.search(r"tuple of Tensors|list", str(error)) else clues.is_list


def _statement(frame: FrameType, number: int) -> ast.stmt | None:
    """The statement that starts at a line, or ends there; for a `raise`, the `if` around it."""
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    if not lines or len(lines) > 20_000:
        return None
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    found: ast.stmt | None = None
    guard: ast.If | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or not node.lineno <= number <= (node.end_lineno or node.lineno):
            continue
        if isinstance(node, ast.If) and any(child.lineno <= number for child in node.body):
            guard = node
        if found is None or node.lineno >= found.lineno:
            found = node
    return guard if isinstance(found, ast.Raise) and guard is not None else found


def _tensor_in(value: ast.expr, frame: FrameType) -> torch.Tensor | None:
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and isinstance(tensor := frame.f_locals.get(node.id), torch.Tensor):
            return tensor
    return None


def _from_condition(test: ast.expr, frame: FrameType, clues: Clues) -> None:
    """Both sides of the comparisons in a condition that failed, where they are plain numbers by now."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = (_number(side, frame) for side in (node.left, node.comparators[0]))
            rest = (
                node.left if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod) else None
            )
            if rest is not None and right == 0:
                whole, divisor = _number(rest.left, frame), _number(rest.right, frame)
                if whole and divisor:
                    clues.divisors.append((whole, divisor))
            elif left is None and right is None:
                _from_shapes(node, frame, clues)
            elif left is not None and right is not None and left != right:
                tensor = _tensor_in(test, frame)
                is_rank = any(
                    isinstance(part, ast.Attribute) and part.attr in ("dim", "ndim")
                    for part in ast.walk(node)
                )
                if is_rank and tensor is not None:
                    clues.ranks.append(RankClash(right - left, sources_of(tensor)))
                    continue
                before = () if tensor is None else clash_of(tensor, left, right).before
                sources = sources_of(tensor)
                clues.sizes += [
                    SizeClash(left, right, sources, before),
                    SizeClash(right, left, sources, before),
                ]


def _from_shapes(node: ast.Compare, frame: FrameType, clues: Clues) -> None:
    """`x.shape[1:] == (3, self.side, self.side)` tells every size."""
    try:
        left, right = (tuple(_value(side, frame)) for side in (node.left, node.comparators[0]))
    except Exception:
        return
    tensor = _tensor_in(node, frame)
    if tensor is None or not all(isinstance(size, int) for size in (*left, *right)):
        return
    if len(left) != len(right):
        clues.ranks.append(RankClash(len(right) - len(left), sources_of(tensor), is_likely=True))
    for have, want in zip(left, right, strict=False):
        if have != want:
            clues.sizes.append(clash_of(tensor, have, want))


def _number(value: ast.expr, frame: FrameType) -> int | None:
    """What an expression of names, sizes and arithmetic is worth in a frame, if that is a whole number."""
    try:
        found = _value(value, frame)
    except Exception:  # a property of the user's class may raise anything
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


_ARITHMETIC = {**ARITHMETIC, ast.Mod: operator.mod, ast.Pow: operator.pow}


def _value(value: ast.expr, frame: FrameType) -> Any:
    if isinstance(value, ast.Constant):
        return value.value
    if isinstance(value, ast.Name):
        return frame.f_locals[value.id] if value.id in frame.f_locals else frame.f_globals[value.id]
    if isinstance(value, ast.Attribute):
        return getattr(_value(value.value, frame), value.attr)
    if isinstance(value, ast.Subscript):
        return _value(value.value, frame)[_value(value.slice, frame)]
    if isinstance(value, ast.Slice):
        return slice(*(side and _value(side, frame) for side in (value.lower, value.upper, value.step)))
    if isinstance(value, (ast.Tuple, ast.List)):
        return tuple(_value(item, frame) for item in value.elts)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return -_value(value.operand, frame)
    if isinstance(value, ast.BinOp):
        return _ARITHMETIC[type(value.op)](_value(value.left, frame), _value(value.right, frame))
    if isinstance(value, ast.Call):
        arguments = [_value(argument, frame) for argument in value.args]
        if isinstance(value.func, ast.Attribute) and value.func.attr in ("size", "dim", "numel"):
            owner = _value(value.func.value, frame)
            if isinstance(owner, torch.Tensor):
                return getattr(owner, value.func.attr)(*arguments)
        elif isinstance(value.func, ast.Name) and value.func.id == "len":
            return len(arguments[0])
    raise TypeError("no plain expression")
