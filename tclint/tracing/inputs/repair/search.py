"""Tries inferred inputs until the model's forward runs on them, and judges whether the result makes sense."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Hashable, Iterator

import torch
from torch import nn

from tclint.graph.ops import Graph, Op
from tclint.tracing.inputs.given import CallInputs
from tclint.tracing.inputs.guesses.layer_inputs import BATCH
from tclint.tracing.inputs.repair.clues import Clues, RankClash, SizeClash
from tclint.tracing.inputs.repair.line_clues import Frames, from_absent, from_layer, from_line, from_message
from tclint.tracing.inputs.repair.operator_clues import from_operator
from tclint.tracing.inputs.repair.repairs import proposals
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
    if not isinstance(error, KeyError):  # its message is the key
        from_message(message, clues)
        from_absent(frames, model, message, clues)
    return clues


_RECORDING = frozenset(
    {Recorder._run_meta.__code__, Recorder._run_real.__code__, Recorder._write_in_place.__code__}
)


def place_of(error: BaseException) -> tuple[tuple[str, int], ...]:
    """File and line of every frame that led to it: the last one may be a helper's that checks all sizes."""
    return tuple((frame.f_code.co_filename, line) for frame, line in _frames(error))


def _frames(error: BaseException) -> Frames:
    found, traceback = [], error.__traceback__
    while traceback is not None:
        found.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found


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
        is_stated = self._current.basis == "stated"
        if not self._is_guess or (is_stated and self._current.is_shown):
            return False
        clues = _doubtful(graph, self._model)
        if is_stated:  # a length that a script or a configuration has says not which dim is the batch
            clues = Clues(swapped=clues.swapped)
        if not (clues.sizes or clues.ranks or clues.swapped or clues.are_nodes):
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
        for candidate in proposals(self._current, clues, self._model, self._first):
            text = candidate.describe()
            if text not in self._tried:
                found.setdefault(text, candidate)
                self._met.setdefault(text, met | {clash})
        if clues.ranks:
            # What the project states with the dims that are asked for goes before what is made up.
            asked = {_ranks(candidate) for candidate in found.values()}
            stated = (guess for guess in self._guesses if guess.basis == "stated")
            fitting = [guess for guess in stated if _ranks(guess) in asked]
            found = {guess.describe(): guess for guess in fitting[:1]} | found
        # What two failures point at comes first.
        self._waiting = {**found, **{text: c for text, c in self._waiting.items() if text not in found}}


def _ranks(inputs: CallInputs) -> tuple[tuple[str, int], ...]:
    named = (*((str(index), value) for index, value in enumerate(inputs.args)), *inputs.kwargs.items())
    return tuple((name, value.dim() if isinstance(value, torch.Tensor) else -1) for name, value in named)


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
                clues.sizes.append(SizeClash(math.prod(shape[1:]), width))
        elif _picks_nodes(op, graph, batch):
            clues.are_nodes = True
        elif "conv" in op.name or "pool" in op.name or op.name == "relu":
            maps.add(op.outputs[0].shape)
        if clues.ranks or clues.sizes or clues.swapped or clues.are_nodes:
            break
    return clues


def _picks_nodes(op: Op, graph: Graph, batch: int) -> bool:
    """Whether an input says which of the examples to read, and how often: examples are not mixed so."""
    if op.name not in ("index", "index_select") or len(op.inputs) != 2 or batch != BATCH:
        return False
    (rows, index), [picked, *_] = op.inputs, op.outputs
    while index.producer is not None and graph.ops[index.producer].kind == "view":
        index = graph.ops[index.producer].inputs[0]
    count = picked.shape[:1]
    return (
        index.input_name is not None
        and rows.shape[:1] == (batch,) != count
        and picked.shape == (*count, *rows.shape[1:])
    )


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
