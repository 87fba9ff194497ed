"""Reads the clues from what a forward raised: its frames, with the recorded operators, and its message."""

from __future__ import annotations

import inspect
import itertools
import linecache
import re
from types import FrameType

from torch import nn

from tclint.tracing.inputs.repair.clues import Clues, RankClash, SizeClash
from tclint.tracing.inputs.repair.line_clues import from_key, from_layer, from_line
from tclint.tracing.inputs.repair.operator_clues import from_operator
from tclint.tracing.record.recorder import Recorder
from tclint.tracing.values.origin import named_weights


def clues_of(error: BaseException, model: nn.Module) -> Clues:
    """Read the frames and the message of what the model's forward raised."""
    frames = _frames(error)
    clues, message = Clues(), str(error)
    refusing = next(
        (frame for frame, _ in reversed(frames) if frame.f_code in _RECORDING and "facts" in frame.f_locals),
        None,
    )
    if refusing is not None:
        with named_weights(refusing.f_locals["self"].weights):
            from_operator(refusing, clues)
    else:
        from_layer(frames, clues)
        from_line(frames, error, clues)
        from_key(frames, error, clues)
    if isinstance(error, KeyError):
        return clues  # its message is the key, in which numbers mean nothing
    _from_message(message, refusing is not None, clues)
    _from_absent(frames, model, message, clues)
    return clues


_RECORDING = frozenset(
    {Recorder._run_meta.__code__, Recorder._run_real.__code__, Recorder._write_in_place.__code__}
)


def place_of(error: BaseException) -> tuple[tuple[str, int], ...]:
    """File and line of every frame that led to it: the last one may be a helper's that checks all sizes."""
    return tuple((frame.f_code.co_filename, line) for frame, line in _frames(error))


def _frames(error: BaseException) -> list[tuple[FrameType, int]]:
    found, traceback = [], error.__traceback__
    while traceback is not None:
        found.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found


def _from_message(message: str, has_operator: bool, clues: Clues) -> None:
    if found := re.search(r"length (\d+) in chunks of (\d+)", message):  # einops
        clues.divisors.append((int(found[1]), int(found[2])))
    if found := re.search(r"expected (\d+) dims\. Received (\d+)-dim tensor", message):  # einops
        clues.ranks.append(RankClash(int(found[1]) - int(found[2]), is_likely=True))
    if found := re.search(r"Shape mismatch, (\d+) != (\d+)", message):  # einops
        clues.sizes.append(SizeClash(int(found[1]), int(found[2])))
    # A recurrent layer's state that was made for another batch.
    if found := re.search(r"hidden(?:\[\d\])? size \(\d+, (\d+), \d+\), got \[\d+, (\d+), \d+\]", message):
        clues.sizes.append(SizeClash(int(found[1]), int(found[2])))
    # einsum
    if found := re.search(r"has size (\d+) for operand \d+ which does not .* seen size (\d+)", message):
        new, seen = int(found[1]), int(found[2])
        clues.sizes += [SizeClash(seen, new), SizeClash(new, seen)]
    if re.search(
        r"[Kk]ernel size can't be greater|too small|smaller than|should be at least|[Ee]xpected.*non-zero",
        message,
    ):
        clues.is_small = True
    if re.search(r"more than one value is ambiguous|elements cannot be converted to Scalar", message):
        clues.is_single = True
    if re.search(r"tensors used as indices must be|indices must be", message):
        clues.integers = clues.integers or frozenset()
    if found := re.search(r"range of \[-?\d+, (-?\d+)\], but got (-?\d+)", message):
        highest, asked = int(found[1]), int(found[2])
        clues.ranks.append(RankClash(max(1, asked - highest) if asked >= 0 else -asked - highest - 1))
    if re.search(r"tuple index out of range|too many indices for tensor", message):
        clues.ranks.append(RankClash(1))
    if (
        found := re.search(r"values to unpack \(expected (?:at least )?(\d+)(?:, got (\d+))?\)", message)
    ) and not clues.ranks:
        clues.ranks.append(RankClash(int(found[1]) - int(found[2]) if found[2] else -1))
    if "must be tuple of Tensors, not Tensor" in message:
        clues.is_list = frozenset()
    if has_operator or clues.sizes or clues.ranks or clues.divisors:
        return
    numbers = list(dict.fromkeys(int(text) for text in re.findall(r"(?<![\w.])\d+(?![\w.])", message)))
    if 2 <= len(numbers) <= 6:
        clues.sizes += [
            SizeClash(one, other) for one in numbers for other in numbers if one != other and other > 0
        ]


def _from_absent(frames: list[tuple[FrameType, int]], model: nn.Module, message: str, clues: Clues) -> None:
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
    clues.unused += [name for name in absent if name not in named and _is_in(name, line)]


def _is_in(name: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None
