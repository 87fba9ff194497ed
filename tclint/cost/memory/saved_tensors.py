"""Which tensors autograd keeps from the forward pass for the backward pass, op by op.

Follows each op's autograd formula (tools/autograd/derivatives.yaml, saved_tensors.toml here) as PyTorch
runs it on a GPU. What counts is storages: views and in-place results share the memory of what they came
from, a tensor that two ops keep is kept once, and what autocast made is what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

from tclint.core.toml import packaged_toml
from tclint.cost.memory.storages import PARAMETER, WEIGHT_COPY, Storage, StorageKey, Storages, is_identity
from tclint.graph.lowering.attention import unfused_reason
from tclint.graph.lowering.gradients import gradient_needs
from tclint.graph.lowering.kernels import collapsible
from tclint.graph.lowering.memory_bound import norm_shape
from tclint.graph.ops import Graph, Op, contiguous_strides, itemsize_bytes
from tclint.graph.ops.op_tables import DERIVATIVES, NOT_DIFFERENTIABLE, operators


@dataclass(frozen=True)
class SavedTensors:
    """What a training step's forward pass leaves behind for the backward pass."""

    by_op: Mapping[int, tuple[Storage, ...]]
    """Storages that each op keeps, parameters and autocast's cached copies of them excepted."""
    unknown: Mapping[str, int]
    """Ops whose formula is not known here, by name with their number; all their inputs are counted."""
    recomputed_bytes: int = 0
    """What a checkpointed region, run again, adds to the peak that the end of the forward pass has."""

    def storages(self, op_indices: frozenset[int] | None = None) -> dict[StorageKey, int]:
        """Distinct storages with their bytes, of all ops or of some."""
        return {
            storage.key: storage.bytes
            for index, kept in self.by_op.items()
            if op_indices is None or index in op_indices
            for storage in kept
        }

    @property
    def bytes(self) -> int:
        return sum(self.storages().values())


def backward_peak_bytes(
    kept: Iterable[tuple[int, StorageKey, int]], again: Mapping[int, int]
) -> tuple[int, int]:
    """(bytes kept when the backward pass starts, the most while it runs).

    The backward pass frees what later ops kept before a checkpointed region is run again.

    Args:
        kept: op, storage and bytes of what the forward pass leaves, in the order of the ops.
        again: bytes that running a region again adds, by the region's last op.
    """
    seen: set[StorageKey] = set()
    total = peak = 0
    waiting = sorted(again.items(), reverse=True)
    for index, key, size in kept:
        while waiting and waiting[-1][0] < index:
            peak = max(peak, total + waiting.pop()[1])
        if key not in seen:
            seen.add(key)
            total += size
    for _, extra in waiting:
        peak = max(peak, total + extra)
    return total, max(peak, total)


def checkpointed(
    graph: Graph,
    storages: Storages,
    by_op: Mapping[int, tuple[Storage, ...]],
    regions: Mapping[int, object],
) -> tuple[dict[int, tuple[Storage, ...]], dict[int, int]]:
    """What is kept where regions keep what enters them only, and the bytes that running each again adds.

    A region that would keep nothing else stays as it is.

    Args:
        by_op: what every op keeps.
        regions: the region of each op that is in one; a region's part of the result is with its last op.
    """
    kept = {index: own for index, own in by_op.items() if index not in regions}
    again: dict[int, int] = {}
    members: dict[object, list[int]] = {}
    for index, region in regions.items():
        members.setdefault(region, []).append(index)
    for region, indices in members.items():
        own = {storage.key: storage for index in indices for storage in by_op.get(index, ())}
        entering = {
            storage.key: storage
            for index in indices
            for storage in _read_from_outside(graph.ops[index], region, regions, storages)
        }
        inner = sum(storage.bytes for key, storage in own.items() if key not in entering)
        if inner:
            again[indices[-1]] = inner
        if own:
            kept[indices[-1]] = tuple((entering if inner else own).values())
    return dict(sorted(kept.items())), again


def _read_from_outside(
    op: Op, region: object, regions: Mapping[int, object], storages: Storages
) -> Iterator[Storage]:
    for position, spec in enumerate(op.inputs):
        made_outside = spec.producer is not None and regions.get(spec.producer) != region
        storage = storages.of_tensor(spec, (op.index, position))
        if (made_outside or spec.input_name is not None) and _is_counted(storage):
            yield storage


def _is_counted(storage: Storage) -> bool:
    """Parameters and autocast's copies of them are counted elsewhere."""
    return storage.bytes > 0 and storage.key[0] not in (PARAMETER, WEIGHT_COPY)


def saved_tensors(graph: Graph) -> SavedTensors:
    """What a training step of a graph keeps; precision and layout are those of the graph as given."""
    return _Saving(graph).run()


@cache
def _tables() -> tuple[dict[str, str], frozenset[str], dict[str, int]]:
    data = packaged_toml("tclint.cost.memory", "saved_tensors.toml")
    rules = {name: token for token, names in data["saved"].items() for name in names}
    return rules, frozenset(data["in_place"]["result"]), dict(data["norms"])


class _Saving:
    """One pass over the ops that have a backward."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.storages = Storages(graph)
        self.needs = gradient_needs(graph)
        self.unknown: dict[str, int] = {}

    def run(self) -> SavedTensors:
        skipped = self.graph.composites
        expanded = self._expanded_weights()
        by_op = {}
        for op in self.graph.ops:
            needs = self.needs[op.index]
            if True not in needs or op.index in skipped:
                continue
            kept = {s.key: s for s in self._kept(op, needs) if _is_counted(s) and s.key not in expanded}
            if kept:
                by_op[op.index] = tuple(kept.values())
        return self._checkpointed(by_op)

    def _expanded_weights(self) -> set[StorageKey]:
        """What is made of weights stored as integers: libraries that store them so keep these alone, and make
        it again in the backward pass (bitsandbytes/autograd/_functions.py, MatMul4Bit)."""
        stored = {
            (PARAMETER, item.name)
            for item in self.graph.parameters
            if not item.is_buffer and item.dtype in ("uint8", "int8")
        }
        made = set()
        for op in self.graph.ops if stored else ():
            if op.kind == "elementwise":
                read = {self.storages.of_input(op, position).key for position in range(len(op.inputs))}
                if read & stored and all(key[0] == PARAMETER for key in read):
                    made.add(self.storages.of_result(op, 0).key)
        return made

    def _checkpointed(self, by_op: dict[int, tuple[Storage, ...]]) -> SavedTensors:
        regions = {op.index: op.checkpoint.region for op in self.graph.ops if op.checkpoint is not None}
        kept, again = checkpointed(self.graph, self.storages, by_op, regions)
        ordered = [(index, storage.key, storage.bytes) for index, own in kept.items() for storage in own]
        total, peak = backward_peak_bytes(ordered, again)
        return SavedTensors(kept, self.unknown, peak - total)

    def _kept(self, op: Op, needs: tuple[bool, ...]) -> Iterator[Storage]:
        if op.has_own_backward and op.name in NOT_DIFFERENTIABLE:
            return  # a straight-through estimator
        special = _SPECIAL.get(op.name)
        if special is not None:
            yield from special(self, op, needs)
        elif op.kind == "norm":
            yield from self._norm(op)
        elif op.kind == "conv":
            # Formula of both gradients at once: both tensors are kept whichever is needed.
            yield from self._inputs(op, "input", "self", "weight", "offset", "mask")
        elif op.kind == "rnn":
            yield from self._rnn(op)
        elif "max_pool" in op.name:
            yield from self._max_pool(op)
        elif op.kind == "view" or is_identity(op):
            return
        elif "dropout" in op.name:
            yield self._extra(op, "mask", op.inputs[0].numel)
        else:
            yield from self._by_table(op, needs)

    # --- by name or kind

    def _by_table(self, op: Op, needs: tuple[bool, ...]) -> Iterator[Storage]:
        rules, _, _ = _tables()
        token = rules.get(op.name)
        if op.name in ("mul", "div", "multiply", "divide", "true_divide") and len(op.inputs) == 1:
            token = "none"
        elif op.name in ("pow", "float_power") and tuple(op.input_names) == ("self",):
            token = "self"  # only a base or an exponent that is a tensor needs the result
        elif op.name in _ADAPTIVE_AVERAGES and prod(op.outputs[0].shape[2:]) == 1:
            token = "none"  # torch takes the mean
        elif token is None and op.kind == "elementwise" and len(op.inputs) == 1:
            saved = DERIVATIVES.get(op.name)
            token = "self" if saved is None or saved.saved == "input" else saved.saved
            token = "none" if token == "free" else token
        elif token is None:
            token = {"copy": "none", "softmax": "output", "loss": "inputs"}.get(op.kind)
        if token is None:
            self.unknown[op.name] = self.unknown.get(op.name, 0) + 1
            token = "inputs"
        for part in token.split("+"):
            yield from self._token(op, needs, part)

    def _token(self, op: Op, needs: tuple[bool, ...], token: str) -> Iterator[Storage]:
        if token == "self":
            yield self._first(op)
        elif token == "output":
            yield self._output(op, 0)
        elif token == "self_and_output":
            yield self._first(op)
            yield self._output(op, 0)
        elif token == "inputs":
            for position, spec in enumerate(op.inputs):
                if spec.is_floating or spec.dtype.startswith("complex") or op.name == "gather":
                    yield self._first(op) if position == 0 else self.storages.of_input(op, position)
        elif token == "source":
            yield from self._inputs(op, "source")
        elif token == "others":
            yield from self._others(op, needs)
        elif token == "indices":
            for position, spec in enumerate(op.inputs):
                if not spec.is_floating:
                    yield self.storages.of_input(op, position)
            for position, spec in enumerate(op.outputs):
                if not spec.is_floating:
                    yield self._output(op, position)

    def _first(self, op: Op) -> Storage:
        """The first input; in place it is gone, and torch kept the result or a copy."""
        if not op.in_place:
            return self.storages.of_input(op, 0)
        if op.name in _tables()[1]:
            return self._output(op, 0)
        return self._extra(op, "copy", op.inputs[0].bytes)

    def _others(self, op: Op, needs: tuple[bool, ...]) -> Iterator[Storage]:
        factors = [p for p, name in enumerate(op.input_names) if p or name not in ("self", "input")]
        if op.name not in ("addmm", "baddbmm", "addbmm", "addmv", "addcmul"):
            factors = list(range(len(op.inputs)))
        for position in factors:
            if any(needs[other] for other in factors if other != position) or (
                # x * x is one tensor with two uses
                needs[position] and len(factors) == 1
            ):
                yield self._first(op) if position == 0 else self.storages.of_input(op, position)

    def _pad(self, op: Op, _: tuple[bool, ...]) -> Iterator[Storage]:
        if op.attributes.get("mode") in ("reflect", "replicate"):
            yield self._first(op)

    def _real_transform(self, op: Op, _: tuple[bool, ...]) -> Iterator[Storage]:
        """A Fourier transform keeps the real numbers that it takes, lengthened where `n` or `s` say so."""
        spec = op.inputs[0]
        if not spec.is_floating:
            return
        lengths, dims = (op.attributes.get(name) for name in ("n" if "n" in op.attributes else "s", "dim"))
        if lengths is None:
            yield self._first(op)
            return
        lengths = [lengths] if isinstance(lengths, int) else lengths
        dims = [dims] if isinstance(dims, int) else (dims or range(-len(lengths), 0))
        shape = dict(zip(dims, lengths, strict=True))
        if all(size <= spec.shape[dim] for dim, size in shape.items()):
            yield self._first(op)  # a part of it
            return
        count = spec.numel
        for dim, size in shape.items():
            count = count // spec.shape[dim] * size
        yield self._extra(op, "longer", count * itemsize_bytes(spec.dtype))

    def _lerp(self, op: Op, needs: tuple[bool, ...]) -> Iterator[Storage]:
        if len(op.inputs) < 3:
            return  # the weight is a number
        if needs[0] or needs[1]:
            yield self.storages.of_input(op, 2)
        if needs[2]:
            yield self._first(op)
            yield self.storages.of_input(op, 1)

    # --- products

    def _linear(self, op: Op, needs: tuple[bool, ...]) -> Iterator[Storage]:
        x, weight = _position(op, "input", "self"), _position(op, "weight", "mat2")
        if needs[weight]:
            yield self._folded(op, x, op.inputs[x].shape[:-1])
        if needs[x]:
            yield self.storages.of_input(op, weight)

    def _matmul(self, op: Op, needs: tuple[bool, ...]) -> Iterator[Storage]:
        a, b = op.inputs[0], op.inputs[1]
        if len(a.shape) <= 2 and len(b.shape) <= 2:
            yield from self._others(op, needs)
            return
        if len(b.shape) <= 2:
            if needs[1]:
                yield self._folded(op, 0, a.shape[:-1])
            if needs[0]:
                yield self.storages.of_input(op, 1)
            return
        batch = _broadcast(a.shape[:-2], b.shape[:-2])
        for position in (0, 1):
            if needs[1 - position]:
                yield self._folded(op, position, batch)

    def _folded(self, op: Op, position: int, leading: tuple[int, ...]) -> Storage:
        """An operand whose leading dims torch makes one; a copy where memory does not allow it as a view."""
        spec = op.inputs[position]
        strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
        kept = len(spec.shape) - (1 if leading == spec.shape[:-1] else 2)
        own, own_strides = spec.shape[: max(kept, 0)], strides[: max(kept, 0)]
        widened = tuple(
            0 if size != target else stride
            for size, target, stride in zip(own, leading[len(leading) - len(own) :], own_strides, strict=True)
        )
        expanded = (0,) * (len(leading) - len(own)) + widened
        storage = self.storages.of_input(op, position)
        # Autocast's copy is dense in the order that the tensor had.
        if collapsible(leading, expanded):
            return storage
        rest = prod(spec.shape[kept:])
        return self._extra(op, f"copy of {position}", prod(leading) * rest * itemsize_bytes(spec.dtype))

    # --- what one kernel does at once

    def _norm(self, op: Op) -> Iterator[Storage]:
        per_row = _tables()[2].get(op.name)
        if per_row is None:
            self.unknown[op.name] = self.unknown.get(op.name, 0) + 1
            per_row = 2
        spec = op.inputs[0]
        if op.name == "group_norm" and spec.memory_format == "strided":
            yield self._extra(op, "dense copy", spec.numel * itemsize_bytes(spec.dtype))
        else:
            yield self.storages.of_input(op, 0)
        for position, name in enumerate(op.input_names):
            if name == "weight":
                yield self.storages.of_input(op, position)
        yield self._extra(op, "statistics", 4 * per_row * norm_shape(op)[0])

    def _max_pool(self, op: Op) -> Iterator[Storage]:
        yield self.storages.of_input(op, 0)
        if len(op.outputs) > 1:
            yield self._output(op, 1)
        else:
            yield self._extra(op, "indices", 8 * op.outputs[0].numel)

    def _attention(self, op: Op, _: tuple[bool, ...]) -> Iterator[Storage]:
        q, k, v = (_position(op, name) for name in ("query", "key", "value"))
        mask = next((p for p, name in enumerate(op.input_names) if name in ("attn_mask", "attn_bias")), None)
        query, key, value = (op.inputs[p] for p in (q, k, v))
        length, key_length = query.shape[-2], key.shape[-2]
        heads = op.outputs[0].numel // max(length * value.shape[-1], 1)
        grouped = bool(op.attributes.get("enable_gqa"))
        if unfused_reason(query, key, value, has_mask=mask is not None, is_grouped=grouped) is None:
            for position in (q, k, v):
                yield self.storages.of_input(op, position)
            yield self._output(op, 0)
            is_flash = query.dtype in ("float16", "bfloat16") and mask is None
            # The memory-efficient kernel pads to 32 rows (kAlignLSE of its forward kernel).
            rows = length if is_flash else -(-length // 32) * 32
            yield self._extra(op, "log-sum-exp", 4 * heads * rows)
            if mask is not None:
                yield self.storages.of_input(op, mask)
            return
        size = max(itemsize_bytes(query.dtype), 4)
        for name, spec in (("query", query), ("key", key)):
            yield self._extra(op, name, size * heads * spec.shape[-2] * spec.shape[-1])
        if value.dtype in ("float16", "bfloat16"):
            yield self._extra(op, "value", size * value.numel)
        else:
            yield self._folded(op, v, op.outputs[0].shape[:-2])
        scores = heads * length * key_length
        yield self._extra(op, "probabilities", size * scores)
        if op.attributes.get("dropout_p"):
            yield self._extra(op, "dropout", (size + 1) * scores)

    def _cross_entropy(self, op: Op, _: tuple[bool, ...]) -> Iterator[Storage]:
        yield self._extra(op, "log-softmax", op.inputs[0].numel * itemsize_bytes(op.outputs[0].dtype))
        for position in range(1, len(op.inputs)):
            yield self.storages.of_input(op, position)

    def _rnn(self, op: Op) -> Iterator[Storage]:
        """Input, states, output, and the reserve that cuDNN fills for its own backward.

        How large it is, cuDNN tells at run time only. For the same four layers of 320 units it asked 736 MB
        as LSTM and 864 MB as GRU (pytorch/pytorch issue 2895), which is as 23 to 27: 5 or 6 values per unit
        and step in each layer, and the outputs of all layers but the last.
        """
        if op.name.endswith("_cell"):
            yield from self._cell(op)
            return
        for position in range(min(len(op.inputs), 3)):
            if op.inputs[position].parameter is None:
                yield self.storages.of_input(op, position)
        output = op.outputs[0]
        yield self._output(op, 0)
        steps = output.numel // max(output.shape[-1], 1)
        recurrent = [
            spec
            for name, spec in zip(op.input_names, op.inputs, strict=False)
            if name.startswith("params[") and spec.parameter is not None and "weight_hh" in spec.parameter
        ]
        if not recurrent:
            self.unknown[op.name] = self.unknown.get(op.name, 0) + 1
            return
        kept = {"lstm": 5, "gru": 6}.get(op.name, 1)
        gates = {"lstm": 4, "gru": 3}.get(op.name, 1)
        width = sum(kept * spec.shape[0] // gates for spec in recurrent)
        # A layer's outputs, in both directions, are what the next one takes.
        between = sum(spec.shape[1] for spec in recurrent) - output.shape[-1]
        yield self._extra(op, "reserve", steps * (width + between) * itemsize_bytes(output.dtype))

    def _cell(self, op: Op) -> Iterator[Storage]:
        """Both products' inputs and results, and the gates that the fused kernel keeps for itself.

        The kernel (aten/src/ATen/native/cuda/RNN.cu) needs the last alone, 4 or 5 values a unit; the products
        are kept for a second derivative (tools/autograd/derivatives.yaml).
        """
        for position, spec in enumerate(op.inputs):
            if spec.parameter is None:
                yield self.storages.of_input(op, position)
        hidden = op.outputs[-1]
        values = {"lstm_cell": 4 + 2 * 4, "gru_cell": 5 + 2 * 3}.get(op.name)
        if values is None:
            yield self._output(op, 0)  # tanh and relu keep their result
            return
        if op.name == "lstm_cell":
            yield self._output(op, 1)
        yield self._extra(op, "gates", values * hidden.bytes)

    # --- helpers

    def _inputs(self, op: Op, *names: str) -> Iterator[Storage]:
        for position, name in enumerate(op.input_names):
            if name in names:
                yield self.storages.of_input(op, position)

    def _output(self, op: Op, position: int) -> Storage:
        return self.storages.of_result(op, position)

    def _extra(self, op: Op, what: str, size: int) -> Storage:
        """A tensor that exists inside the op only."""
        return Storage(("inside", op.index, what), size)


def _position(op: Op, *names: str) -> int:
    return next((p for p, name in enumerate(op.input_names) if name in names), 0)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(max(x, y) if x and y else 0 for x, y in zip(left, right, strict=True))


_ADAPTIVE_AVERAGES = frozenset({"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"})

_Special = Callable[[_Saving, Op, tuple[bool, ...]], Iterator[Storage]]
_SPECIAL: dict[str, _Special] = {
    "linear": _Saving._linear,
    "matmul": _Saving._matmul,
    "cross_entropy_loss": _Saving._cross_entropy,
    "pad": _Saving._pad,
    "lerp": _Saving._lerp,
    **dict.fromkeys(
        (
            "fft_fft",
            "fft_ifft",
            "fft_rfft",
            "fft_rfft2",
            "fft_rfftn",
            "fft_ihfft",
            "fft_ihfft2",
            "fft_ihfftn",
        ),
        _Saving._real_transform,
    ),
    **dict.fromkeys(operators("products", "attention"), _Saving._attention),
}
