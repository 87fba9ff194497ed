"""The order in which layers are registered, where gradients are sent in it."""

from __future__ import annotations

from collections.abc import Iterator

from tclint.analysis.gradient_order import sending_order
from tclint.plugin import Effect, Finding, Fix, GraphContext, GraphRule, Location

_WORTH_SAYING = 0.1
"""The least share of the backward pass that a gradient waits on average: what is left to hide the
exchange."""


class ConstructorOrder(GraphRule):
    """Layers are registered in a different order from the one they run in, under find_unused_parameters=True.

    What it does
    Applies where the training script given beside the model wraps it in DistributedDataParallel with
    find_unused_parameters=True. Follows the predicted backward pass and DDP's buckets: when each gradient
    is ready, and when the bucket that holds it is sent. Reports the model when gradients wait a tenth of
    the backward pass longer than they would if the layers were registered in the order in which they run.

    Why it costs
    DDP sends gradients while the backward pass still runs, in buckets made in reverse order of
    registration, one after the other. A layer that is registered last and used first completes the first
    bucket at the very end of the backward pass: until then nothing is sent. Without
    find_unused_parameters DDP sorts the buckets again after the first step.

    Example
        self.head = nn.Linear(1024, 1024)
        self.body = nn.Sequential(...)
        self.stem = nn.Linear(1024, 1024)       # runs first, registered last

    Use instead
        self.stem = nn.Linear(1024, 1024)
        self.body = nn.Sequential(...)
        self.head = nn.Linear(1024, 1024)

    When it does not apply
    Training on one GPU, or without find_unused_parameters=True, which most models do not need. Models
    with fewer than two buckets (26 MB of gradients).
    """

    code = "ARC020"
    name = "ddp-constructor-order"
    level = "info"
    confidence = "medium"
    sources = (
        "PyTorch Performance Tuning Guide, Match the order of layers in constructors and during the "
        "execution: with DistributedDataParallel(find_unused_parameters=True)",
        "PyTorch 2.13 torch/csrc/distributed/c10d/reducer.cpp: buckets are rebuilt after the first step "
        "unless unused parameters are sought",
    )

    def check(self, context: GraphContext) -> Iterator[Finding]:
        if not context.settings.find_unused_parameters or context.settings.mode != "train":
            return
        found = {scenario.gpu: sending_order(context, scenario) for scenario in context.scenarios}
        orders = {gpu: order for gpu, order in found.items() if order is not None and order.backward_time_us}
        shares = {gpu: order.delay_us / order.backward_time_us for gpu, order in orders.items()}
        gpu = max(shares, key=lambda name: shares[name], default="")
        if not gpu or shares[gpu] < _WORTH_SAYING:
            return
        order = orders[gpu]
        late = [parameter.name.rpartition(".")[0] or parameter.name for parameter in order.late[:3]]
        site = next((p.construct_site for p in order.late if p.construct_site is not None), None)
        root = context.root_location()
        yield self.finding(
            root if site is None else Location(site.path, site.line, module_path=late[0]),
            "Under find_unused_parameters=True gradients are sent in the reverse of the order of "
            "registration, which is not that of the backward pass: held up by "
            f"{', '.join(dict.fromkeys(late))}, they wait {100 * shares[gpu]:.0f} % of the backward pass "
            f"({order.delay_us / 1000:.1f} ms on {gpu}) longer than in execution order.",
            effect=Effect(unknown="how long the exchange takes depends on the network between the GPUs"),
            evidence={
                "delay_us": {name: round(found.delay_us, 1) for name, found in orders.items()},
                "backward_share": {name: round(share, 3) for name, share in shares.items()},
                "held_up_by": late,
            },
            fix=Fix(
                "Construct the layers in the order in which forward runs them, or leave out "
                "find_unused_parameters=True where every parameter gets a gradient."
            ),
            identity="registration order",
        )
