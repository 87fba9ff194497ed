"""Recurrent layers and cells: matrix products over all time steps, and one per step that waits for the last.

Scheduling as cuDNN does it (Appleyard, Kocisky, Blunsom, "Optimizing Performance of Recurrent Neural
Networks on GPUs", 2016): the input's product is batched over time, the recurrent one runs step by step,
the weight gradients are batched over time. Weight layout: torch.nn.LSTM, GRU and RNN.
"""

from __future__ import annotations

from dataclasses import dataclass

from tclint.graph.lowering.kernels import Lowering, LoweringRule, NoFormulaError, gemm
from tclint.graph.ops.spec import itemsize_bytes

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@dataclass(frozen=True, slots=True)
class _Direction:
    """One layer in one direction.

    `steps` are (batch size, number of steps) pairs; packed sequences, whose sizes are not recorded, are
    taken to shrink as little as possible, which keeps their FLOPs exact.
    """

    steps: tuple[tuple[int, int], ...]
    rows: int
    """Batch size summed over the steps."""
    inputs: int
    hidden: int
    """Size of the cell state."""
    state: int
    """Size of the state that is fed back: `hidden`, or the projection's size."""
    gates: int
    """Rows of the weights: 4, 3 or 1 times `hidden`."""
    dtype: str
    input_needed: bool
    state_needed: bool
    """Whether a gradient flows into the state before the first step; cuDNN's layers always compute it."""
    weight_needed: bool
    bias_needed: bool


def _family(low: Lowering) -> str:
    name = low.op.name
    for family in _GATES:
        if family in name:
            return family
    raise NoFormulaError(f"no formula for the recurrent operator {name}")


def layer(low: Lowering) -> None:
    """lstm, gru, rnn_tanh and rnn_relu, on padded or packed input."""
    op = low.op
    parameters = [position for position, name in enumerate(op.input_names) if name.startswith("params[")]
    if not parameters:
        raise NoFormulaError("a recurrent layer was recorded without its weights")
    directions = 2 if low.attribute("bidirectional", False) else 1
    layers = int(low.attribute("num_layers", 1))
    per_group, rest = divmod(len(parameters), layers * directions)
    biases = 2 if low.attribute("has_biases", True) else 0
    if rest or per_group not in (2 + biases, 3 + biases):
        raise NoFormulaError("a recurrent layer whose weights do not match its number of layers")
    projected = per_group == 3 + biases
    steps, rows = _steps(low)
    gates = _GATES[_family(low)]
    data = low.position("input", "data")
    dtype = op.inputs[data].dtype
    below_needed = low.needed(data)
    for first in range(0, len(parameters), per_group * directions):
        group = parameters[first : first + per_group * directions]
        this_needed = any(low.needs[position] for position in group)
        for start in range(0, len(group), per_group):
            w_ih, w_hh = op.inputs[group[start]], op.inputs[group[start + 1]]
            _direction(
                low,
                _Direction(
                    steps=steps,
                    rows=rows,
                    inputs=w_ih.shape[1],
                    hidden=w_ih.shape[0] // gates,
                    state=w_hh.shape[1],
                    gates=w_ih.shape[0],
                    dtype=dtype,
                    input_needed=below_needed,
                    state_needed=True,
                    # cuDNN computes the gradients of all weights at once.
                    weight_needed=any(low.needs[position] for position in group[start : start + 2]),
                    bias_needed=bool(biases) and low.needs[group[start + 2]],
                ),
                projected,
                backward=below_needed or this_needed,
            )
        below_needed = below_needed or this_needed
        _between_layers(low, rows, directions, group, last=first + len(group) >= len(parameters))


def _between_layers(low: Lowering, rows: int, directions: int, group: list[int], *, last: bool) -> None:
    """Dropout on a layer's output, in training and before another layer."""
    if last or not low.training or not low.attribute("dropout", 0.0) or not low.attribute("train", True):
        return
    spec = low.op.inputs[group[1]]
    elements = rows * directions * spec.shape[1]
    size = elements * itemsize_bytes(spec.dtype)
    low.traffic("elementwise", size, size + elements, operation="dropout")
    if low.any_needed:
        low.traffic("elementwise", size + elements, size, operation="dropout_backward", backward=True)


def _steps(low: Lowering) -> tuple[tuple[tuple[int, int], ...], int]:
    """((batch, steps), ...) and their total number of rows."""
    packed = low.find("batch_sizes")
    if packed is not None:
        rows = low.op.inputs[low.position("data", "input")].shape[0]
        count = low.op.inputs[packed].numel
        small, larger = divmod(rows, max(count, 1))
        return tuple(pair for pair in ((small + 1, larger), (small, count - larger)) if all(pair)), rows
    shape = low.op.inputs[low.position("input")].shape
    if len(shape) == 2:  # without batch
        return ((1, shape[0]),), shape[0]
    batch, count = (shape[0], shape[1]) if low.attribute("batch_first", False) else (shape[1], shape[0])
    return ((batch, count),), batch * count


def _direction(low: Lowering, d: _Direction, projected: bool, *, backward: bool) -> None:
    _forward(low, d, projected)
    if not backward:
        return
    itemsize = itemsize_bytes(d.dtype)
    launches = sum(count for _, count in d.steps)
    # Per step: gradients of the gates from those of the state, the saved gates and the cell state.
    read = d.rows * (2 * d.gates + 3 * d.hidden) * itemsize
    low.traffic(
        "elementwise", read, d.rows * (d.gates + d.hidden) * itemsize, launches=launches, backward=True
    )
    for batch, count in d.steps:
        if projected:
            low.run_backward(gemm(batch, d.hidden, d.state, d.dtype, layout="knn", repeats=count), "dgrad")
        if d.state_needed:
            low.run_backward(gemm(batch, d.state, d.gates, d.dtype, layout="knn", repeats=count), "dgrad")
    if d.input_needed:
        low.run_backward(gemm(d.rows, d.inputs, d.gates, d.dtype, layout="knn"), "dgrad")
    if d.weight_needed:
        low.run_backward(gemm(d.gates, d.inputs, d.rows, d.dtype, layout="mnn"), "wgrad")
        low.run_backward(gemm(d.gates, d.state, d.rows, d.dtype, layout="mnn"), "wgrad")
        if projected:
            low.run_backward(gemm(d.state, d.hidden, d.rows, d.dtype, layout="mnn"), "wgrad")
    if d.bias_needed:
        low.traffic(
            "reduction", d.rows * d.gates * itemsize, d.gates * itemsize, operation="sum", backward=True
        )


def _forward(low: Lowering, d: _Direction, projected: bool) -> None:
    low.run(gemm(d.rows, d.gates, d.inputs, d.dtype, layout="kkn"))
    launches = 0
    for batch, count in d.steps:
        launches += count
        low.run(gemm(batch, d.gates, d.state, d.dtype, layout="kkn", repeats=count))
        if projected:
            low.run(gemm(batch, d.state, d.hidden, d.dtype, layout="kkn", repeats=count))
    itemsize = itemsize_bytes(d.dtype)
    # Per step: both products and the cell state in; both states and, for backward, the gates out.
    kept = d.gates if low.any_needed else 0
    low.traffic(
        "elementwise",
        d.rows * (2 * d.gates + d.hidden) * itemsize,
        d.rows * (2 * d.hidden + kept) * itemsize,
        launches=launches,
    )


def cell(low: Lowering) -> None:
    """lstm_cell, gru_cell, rnn_tanh_cell and rnn_relu_cell: one step of one layer."""
    op = low.op
    x, w_ih, w_hh = low.position("input"), low.position("w_ih"), low.position("w_hh")
    b_ih = low.find("b_ih")
    spec, weight = op.inputs[x], op.inputs[w_ih]
    rows = spec.numel // max(weight.shape[1], 1)
    d = _Direction(
        steps=((rows, 1),),
        rows=rows,
        inputs=weight.shape[1],
        hidden=weight.shape[0] // _GATES[_family(low)],
        state=op.inputs[w_hh].shape[1],
        gates=weight.shape[0],
        dtype=spec.dtype,
        input_needed=low.needed(x),
        state_needed=low.needed(low.find("hx[0]", "hx")),
        weight_needed=low.needed(w_ih),
        bias_needed=low.needed(b_ih),
    )
    _direction(low, d, projected=False, backward=low.any_needed)


RULES: dict[str, LoweringRule] = {
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), layer),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), cell),
}
