"""What Python that raised tells: the layer of PyTorch that checked its input, the line, and the message."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import re
from types import FrameType

import torch
from torch import nn
from torch.nn import functional

from tclint.tracing.inputs.repair.clues import Clues, RankClash, SizeClash, sources_of
from tclint.tracing.values.user_code import tree_of

Frames = list[tuple[FrameType, int]]
"""Those that led to an error, the outermost first, each with its line."""

_NORM_RANKS = {"BatchNorm2d": 4, "BatchNorm3d": 5, "InstanceNorm2d": 4, "InstanceNorm3d": 5}
_UNPACKED = re.compile(r"values to unpack \(expected (?:at least )?(\d+)(?:, got (\d+))?\)")
_DIM = re.compile(r"\([^)]*\)|\w+")
"""One dim in an einops pattern: 'b (h p) c' has three."""


def from_layer(frames: Frames, clues: Clues) -> None:
    """RNNs, attention and norms of torch.nn check their input in Python."""
    for frame, _ in reversed(frames):
        layer = frame.f_locals.get("self")
        if not isinstance(layer, nn.Module):
            continue
        pattern = getattr(layer, "pattern", None)  # of einops' layers
        is_einops = type(layer).__module__.startswith("einops.") and isinstance(pattern, str)
        if not (is_einops or type(layer).__module__.startswith("torch.nn")):
            continue
        found = (frame.f_locals.get(name) for name in ("input", "query", "src", "x"))
        tensor = next((value for value in found if isinstance(value, torch.Tensor)), None)
        if tensor is None:
            continue
        if is_einops:
            clues.add_rank(tensor, len(_DIM.findall(str(pattern).partition("->")[0])), is_likely=True)
        elif isinstance(layer, nn.modules.batchnorm._NormBase):
            clues.add_rank(tensor, _NORM_RANKS.get(type(layer).__name__, 3))
        elif isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
            width = layer.embed_dim if isinstance(layer, nn.MultiheadAttention) else layer.input_size
            if tensor.dim() not in (2, 3):
                clues.add_rank(tensor, 3)
            elif tensor.shape[-1] != width:
                clues.add_size(tensor, tensor.shape[-1], width)
        return


def from_line(frames: Frames, error: BaseException, clues: Clues) -> None:
    """`b, t, c = x.shape` and `assert x.shape[1] == 3` tell what they wanted."""
    frame, number = frames[-1]
    statement = _statement(frame, number)
    if isinstance(statement, (ast.Assert, ast.If)):
        _from_condition(statement.test, frame, clues)
    elif isinstance(statement, ast.Assign) and isinstance(error, ValueError):
        target, tensor = statement.targets[0], _tensor_in(statement.value, frame)
        names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        if tensor is None or not names or any(isinstance(name, ast.Starred) for name in names):
            return
        if isinstance(statement.value, ast.Name):
            clues.parts = len(names)  # `x, edges = data`: nobody unpacks a batch into its examples
        else:
            clues.add_rank(tensor, len(names))


def _statement(frame: FrameType, number: int) -> ast.stmt | None:
    """The innermost statement of a line; for a `raise`, the `if` around it."""
    around = [
        node
        for node in ast.walk(tree_of(frame.f_code.co_filename))
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or node.lineno)
    ]
    found = max(around, key=lambda node: node.lineno, default=None)
    guards = [node for node in around if isinstance(node, ast.If)]
    return guards[-1] if isinstance(found, ast.Raise) and guards else found


def _tensor_in(value: ast.expr, frame: FrameType) -> torch.Tensor | None:
    names = (frame.f_locals.get(node.id) for node in ast.walk(value) if isinstance(node, ast.Name))
    return next((found for found in names if isinstance(found, torch.Tensor)), None)


def _from_condition(test: ast.expr, frame: FrameType, clues: Clues) -> None:
    """Both sides of the comparisons in a condition that failed, where they are plain numbers by now."""
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        left, right = _sizes(node.left, frame), _sizes(node.comparators[0], frame)
        tensor = _tensor_in(test, frame)
        if left is None or right is None or left == right:
            continue
        is_rank = any(map(_is_rank, ast.walk(node)))
        if tensor is not None and (is_rank or len(left) != len(right)):
            more = right[0] - left[0] if is_rank else len(right) - len(left)
            clues.ranks.append(RankClash(more, sources_of(tensor), is_likely=not is_rank))
            continue
        sources = sources_of(tensor)
        for one, other in zip(left, right, strict=False):
            if one != other:
                clues.sizes += [SizeClash(one, other, sources), SizeClash(other, one, sources)]


def _is_rank(node: ast.AST) -> bool:
    """`x.dim()`, `x.ndim`, `len(x.shape)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        return any(getattr(part, "attr", "") in ("shape", "size") for part in ast.walk(node))
    return getattr(node, "attr", "") in ("dim", "ndim")


_PLAIN = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List),
    *(ast.UnaryOp, ast.BinOp, ast.Call, ast.operator, ast.unaryop, ast.expr_context),
)


def _sizes(value: ast.expr, frame: FrameType) -> tuple[int, ...] | None:
    """What an expression of names, sizes and arithmetic is worth in a frame, if that is whole numbers."""
    if not all(isinstance(node, _PLAIN) and _is_harmless(node) for node in ast.walk(value)):
        return None
    try:
        code = compile(ast.Expression(value), "<size>", "eval")
        found = eval(code, {**frame.f_globals, **frame.f_locals})
    except Exception:  # a property of the user's class may raise anything
        return None
    sizes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    return sizes if sizes and all(type(size) is int for size in sizes) else None


def _is_harmless(node: ast.AST) -> bool:
    """Whether a call only asks for a size."""
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else "len"
    return name in ("size", "dim", "numel", "len")


def from_message(message: str, clues: Clues) -> None:
    """What Python and PyTorch say of something unpacked, and of a tensor in place of several."""
    if (found := _UNPACKED.search(message)) and not (clues.ranks or clues.parts):
        clues.ranks.append(RankClash(int(found[1]) - int(found[2]) if found[2] else -1))
    clues.is_list = "tuple of Tensors" in message


def from_absent(frames: Frames, model: nn.Module, message: str, clues: Clues) -> None:
    """Optional arguments of the forward that are None, and that the message names, or the failing line."""
    forward = getattr(inspect.unwrap(model.forward), "__code__", None)
    inner = list(itertools.dropwhile(lambda item: item[0].f_code is not forward, frames))
    if not inner:
        return
    code, given = inner[0][0].f_code, inner[0][0].f_locals
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    absent = [name for name in names if name in given and given[name] is None]
    named = [name for name in absent if _is_in(name, message)]
    line = ""
    # The layer that could not do without one tells it from the others that the forward handed on.
    for frame, number in reversed(inner):
        line = linecache.getline(frame.f_code.co_filename, number, frame.f_globals)
        if not named and ("None" in message or "None" in line or "local variable" in message):
            named = [name for name in absent if frame.f_locals.get(name, "") is None and _is_in(name, line)]
    clues.missing += named
    _from_loss(inner, clues)
    clues.unused += [name for name in absent if name not in named and _is_in(name, line)]


def _from_loss(frames: Frames, clues: Clues) -> None:
    """A loss of PyTorch that got no target tells its shape by what it was given."""
    for frame, _ in frames:
        given = frame.f_locals
        if frame.f_code.co_filename == functional.__file__ and given.get("target", ...) is None:
            clues.compared = given["input"] if isinstance(given.get("input"), torch.Tensor) else None
            clues.has_classes = frame.f_code.co_name in _OF_CLASSES


_OF_CLASSES = frozenset({"cross_entropy", "multi_margin_loss", "nll_loss"})


def _is_in(name: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None
