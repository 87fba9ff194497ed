"""When the gradients of a model are ready, and when DistributedDataParallel can send them.

DDP collects parameters into buckets in the order in which they are registered, and sends the buckets one
after the other, the last one first. Without find_unused_parameters it sorts them anew after the first
step, by when their gradients came; with it the order of construction stays
(torch/csrc/distributed/c10d/reducer.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tclint.analysis.graph_context import GraphContext
from tclint.cost.scenario import Scenario
from tclint.graph.ops.graph import Parameter

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
"""torch's defaults: DistributedDataParallel(bucket_cap_mb=25), and its smaller first bucket."""


@dataclass(frozen=True, slots=True)
class SendingOrder:
    """How long gradients wait for the buckets before them, on one GPU."""

    backward_time_us: float
    delay_us: float
    """From when a gradient could be sent, had the layers been registered in the order in which they run,
    until its bucket is; the mean over the bytes."""
    late: tuple[Parameter, ...]
    """Parameters that hold others up, the worst first: registered late, used early."""


def sending_order(context: GraphContext, scenario: Scenario) -> SendingOrder | None:
    """None where the model has fewer than two buckets: then nothing waits for anything."""
    ready = _ready_us(context, scenario)
    registered = [p for p in context.graph.parameters if p.trainable and not p.is_buffer and p.name in ready]
    present = _buckets(registered)
    ideal = _buckets(sorted(registered, key=lambda p: -ready[p.name]))
    total = sum(p.bytes for p in registered)
    if len(present) < 2 or not total:
        return None
    now, best = (_sent_us(buckets, ready) for buckets in (present, ideal))
    delay = sum((now[p.name] - best[p.name]) * p.bytes for p in registered) / total
    late: dict[str, float] = {}
    holding: Parameter | None = None
    for bucket in present:
        last = max(bucket, key=lambda p: ready[p.name])
        if holding is None or ready[last.name] > ready[holding.name]:
            holding = last
        waiting = sum(
            (ready[holding.name] - ready[p.name]) * p.bytes for p in bucket if p.name != holding.name
        )
        late[holding.name] = late.get(holding.name, 0.0) + waiting
    by_name = {p.name: p for p in registered}
    worst = sorted(late, key=lambda name: -late[name])
    return SendingOrder(
        context.estimate(scenario).backward_time_us, delay, tuple(by_name[name] for name in worst)
    )


def _ready_us(context: GraphContext, scenario: Scenario) -> dict[str, float]:
    """By parameter: when in the backward pass its gradient is complete, with the first op that reads it."""
    estimate = context.estimate(scenario)
    backward_us: dict[int, float] = {}
    for kernel, price in zip(estimate.kernels, estimate.prices, strict=True):
        if kernel.phase == "backward":
            backward_us[kernel.op_index] = backward_us.get(kernel.op_index, 0.0) + price.time_us
    passed, ready = 0.0, dict[str, float]()
    for op in reversed(context.graph.ops):
        passed += backward_us.get(op.index, 0.0)
        for spec in op.inputs:
            if spec.parameter is not None:
                ready[spec.parameter] = passed
    return ready


def _buckets(parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    """The buckets of parameters in order of registration, as they are sent: the last one first."""
    buckets: list[list[Parameter]] = [[]]
    limit, filled = FIRST_BUCKET_BYTES, 0
    for parameter in parameters:
        if filled >= limit:
            buckets.append([])
            limit, filled = BUCKET_BYTES, 0
        buckets[-1].append(parameter)
        filled += parameter.bytes
    return buckets[::-1]


def _sent_us(buckets: Sequence[Sequence[Parameter]], ready: dict[str, float]) -> dict[str, float]:
    """When each parameter's bucket starts to be sent: complete, and after those before it."""
    sent: dict[str, float] = {}
    before = 0.0
    for bucket in buckets:
        before = max(before, *(ready[p.name] for p in bucket))
        sent |= dict.fromkeys((p.name for p in bucket), before)
    return sent
