"""Tries inferred inputs until the model's forward runs on them, and judges whether the result makes sense."""

from __future__ import annotations

import inspect
import itertools
import linecache
import math
import re
import time
from collections import deque
from collections.abc import Hashable, Iterator
from types import FrameType

from torch import nn

from tclint.graph.ops import Graph, Op
from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.inputs.repair.clues import Clues, RankClash, SizeClash
from tclint.tracing.inputs.repair.line_clues import from_key, from_layer, from_line
from tclint.tracing.inputs.repair.operator_clues import from_operator
from tclint.tracing.inputs.repair.repairs import Repairs
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


_MAX_ATTEMPTS = 60
_MAX_SECONDS = 10.0
# Attempts in the wake of one guess before the next one gets its turn.
_MAX_REPAIRS = 16


class InputSearch:
    """The inputs to try, in turn; what failed is repaired where the failure tells how.

    Inputs that somebody gave are tried alone.
    """

    def __init__(self, model: nn.Module, inputs: CallInputs) -> None:
        self._model = model
        self._first = inputs
        self._is_guess = inputs.source == "inferred"
        self._guesses = deque(inputs.alternatives)
        self._repairs = Repairs(model)
        self._waiting: dict[str, CallInputs] = {}
        self._tried = {inputs.describe()}
        self._met: dict[str, frozenset[Hashable]] = {}
        """The clashes that led to each proposal."""
        self._repaired = 0
        self._current = inputs

    def __iter__(self) -> Iterator[CallInputs]:
        yield self._first
        deadline = time.process_time() + _MAX_SECONDS
        for _ in range(_MAX_ATTEMPTS):
            if time.process_time() > deadline:
                return
            following = self._next()
            if following is None:
                return
            self._current = following
            yield following

    def _next(self) -> CallInputs | None:
        if self._waiting and self._repaired < _MAX_REPAIRS:
            self._repaired += 1
            return self._pop()
        while self._guesses:
            guess = self._guesses.popleft()
            if guess.describe() not in self._tried:
                self._tried.add(guess.describe())
                self._repaired = 0
                return guess
        return self._pop() if self._waiting else None

    def _pop(self) -> CallInputs:
        text = next(iter(self._waiting))
        self._tried.add(text)
        return self._waiting.pop(text)

    def failed(self, error: BaseException) -> None:
        """Learn from what the forward raised on the inputs that were tried last."""
        if self._is_guess:
            self._add(clues_of(error, self._model), place_of(error))

    def doubts(self, graph: Graph) -> bool:
        """Whether the forward ran on inferred inputs, but hardly as meant; then others are tried."""
        if not self._is_guess or self._current.basis == "stated":
            return False
        clues = _doubtful(graph, self._model)
        if not (clues.sizes or clues.ranks or clues.swapped):
            return False
        self._add(clues)
        return True

    def _add(self, clues: Clues, place: Hashable = None) -> None:
        sizes, met = clues.clash(), self._met.get(self._current.describe(), frozenset())
        # The next line may say of the width what this one said of the height.
        clash = (sizes, place)
        if sizes is not None and clash in met:
            return  # what was changed has nothing to do with it
        found: dict[str, CallInputs] = {}
        for candidate in self._repairs.propose(self._current, clues, self._first):
            text = candidate.describe()
            if text not in self._tried:
                found.setdefault(text, candidate)
                self._met.setdefault(text, met | {clash})
        # What two failures point at comes first.
        self._waiting = {**found, **{text: c for text, c in self._waiting.items() if text not in found}}


def _doubtful(graph: Graph, model: nn.Module) -> Clues:
    """What in a trace looks as if a batch had been taken for something else."""
    clues = Clues()
    maps: set[tuple[int, ...]] = set()
    batch = next((spec.shape[0] for spec in graph.inputs if spec.shape), 0)
    for op in graph.ops:
        if not op.inputs:
            continue
        shape, is_attention = op.inputs[0].shape, op.module_type == "MultiheadAttention"
        if op.name in _WITHOUT_BATCH and len(shape) == _WITHOUT_BATCH[op.name]:
            clues.ranks.append(RankClash(1))
        elif len(shape) == 3 and (op.name in _RECURRENT or (op.name == "linear" and is_attention)):
            _check_order(op, shape, model, batch, clues)
        elif op.name == "unsqueeze" and op.module_type in _RECURRENT_LAYERS:
            clues.ranks.append(RankClash(1))
        elif op.name == "unsqueeze" and is_attention and len(shape) == 2:
            attention = _module(model, op.module_path)
            if getattr(attention, "embed_dim", None) == shape[-1] and op.inputs[0].dtype.startswith("float"):
                clues.ranks.append(RankClash(1))
        elif op.name in ("view", "reshape") and shape in maps and len(op.outputs[0].shape) == 2:
            rows, width = op.outputs[0].shape
            # More rows than examples: the flattened maps were larger than the layer behind them takes.
            is_mixed = width not in shape or (len(shape) == 4 and width == shape[1])
            if shape[0] == batch < rows and is_mixed:
                clues.sizes.append(SizeClash(math.prod(shape[1:]), width, before=(("view", shape),)))
        elif "conv" in op.name or "pool" in op.name or op.name == "relu":
            maps.add(op.outputs[0].shape)
        if clues.ranks or clues.sizes or clues.swapped:
            break
    return clues


_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_RECURRENT_LAYERS = frozenset({"GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"})

# Ranks of the operators' inputs where the batch is left out.
_WITHOUT_BATCH = {
    "conv1d": 2,
    "conv2d": 3,
    "conv3d": 4,
    "conv_transpose1d": 2,
    "conv_transpose2d": 3,
    "conv_transpose3d": 4,
    "linear": 1,
    "max_pool2d": 3,
}


def _check_order(op: Op, shape: tuple[int, ...], model: nn.Module, batch: int, clues: Clues) -> None:
    """Time first is what a layer without batch_first wants; a short time over a large batch is not likely."""
    layer = _module(model, op.module_path)
    if getattr(layer, "batch_first", True) is False and shape[0] == batch < shape[1]:
        clues.swapped = True


def _module(model: nn.Module, path: str) -> nn.Module | None:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None
