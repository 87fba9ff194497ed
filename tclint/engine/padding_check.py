"""Checks that a model and its padded copy compute the same by running both in separate processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from tclint.config.settings import Settings
from tclint.core.errors import UsageError
from tclint.engine.script.as_built import runs_as_built
from tclint.graph.dims.coupled import CoupledDims, DimsUnresolved
from tclint.graph.dims.realized import sizes_of_weights
from tclint.graph.dims.small_inputs import with_small_inputs
from tclint.graph.lowering.step import forward_flops
from tclint.graph.weights.plan import WeightPlan
from tclint.graph.weights.weight_plan import weight_plan
from tclint.tracing import shared_worker, trace_runs
from tclint.tracing.worker.client import Side, check_inputs, compare_runs

_MOST_FLOPS = 1e11
"""FLOPs allowed for one of about fifteen forwards; a CPU core does 2e10 FLOPs a second in float64."""
_BYTES_PER_PARAMETER = 24
"""Memory per parameter: value and gradient in float64, and the random numbers that fill it."""


def proved_plan(
    original: Side,
    padded: Side,
    settings: Settings,
    dims: CoupledDims,
    plan: WeightPlan,
    given: str | None = None,
) -> WeightPlan:
    """The plan with the results of running both models.

    Args:
        original: the target.
        padded: the target with its sizes edited.
        settings: the settings of the run.
        dims: the coupled dims of the original as it was traced.
        plan: the mapping of the weights' entries.
        given: a file with weights of the original, for one more run.
    """
    graph = dims.graph
    is_large = _BYTES_PER_PARAMETER * graph.parameter_count >> 20 > settings.memory_limit_mib
    inputs = [(spec.input_name or "", spec.dtype, spec.shape) for spec in graph.inputs]
    small = list(with_small_inputs(dims))
    # The reduced copy of a large model takes less, and has its own time limit.
    used = small[:1] if is_large else [one for one in small if forward_flops(one) <= _MOST_FLOPS]
    shapes = [[spec.shape for spec in one.inputs] for one in used]
    pair = (original, padded)
    proof = compare_runs(
        pair, settings, plan, inputs, shapes, given=None if is_large else given, fewer_layers=is_large
    )
    return plan.proved(proof)


def checked_plan(
    original: str,
    padded: str,
    settings: Settings,
    plan: WeightPlan | None = None,
    checkpoint: str | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> WeightPlan:
    """The plan of a padding that was made by hand, with the results of running both models.

    Args:
        original: a target.
        padded: the same target with its sizes edited.
        settings: the settings of both; inputs, arguments and limits count.
        plan: the mapping of the weights' entries; None: derived from both models.
        checkpoint: weights of the original, for one more run.
        on_progress: called with one line about each stage of the work.

    Raises:
        TargetError: one of the targets could not be traced.
        UsageError: the targets are not one model at two sizes, or the checkpoint does not fit it.
    """
    say = on_progress or (lambda _: None)
    check_inputs(settings)
    with shared_worker(), tempfile.TemporaryDirectory() as folder:
        say(f"tracing {original} and {padded}")
        graphs = []
        for target in (original, padded):
            runs = [(target, settings)]
            [(_, results)] = runs_as_built(runs, trace_runs)
            settings = results[0].made_so(settings)  # the padded one is made as the original is
            if results[0].graph is None:
                assert results[0].error is not None
                raise results[0].error
            graphs.append(results[0].graph)
        dims = CoupledDims(graphs[0])
        if plan is None:
            try:
                plan = weight_plan(dims, sizes_of_weights(dims, graphs[1]))
            except DimsUnresolved as error:
                raise UsageError(
                    f"{padded} is not {original} with larger sizes ({error}); edit sizes alone."
                ) from None
        given = None
        if checkpoint is not None:
            from tclint.checkpoints.torch_file import save_weights

            given = os.path.join(folder, "given")
            save_weights(checkpoint, plan, given)
        say("comparing runs of both models")
        return proved_plan((original, None), (padded, None), settings, dims, plan, given)
