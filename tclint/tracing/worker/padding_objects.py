"""Two models of the caller's, compared."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from tclint.graph.dims.coupled import CoupledDims, DimsUnresolved
from tclint.graph.dims.realized import sizes_of_weights
from tclint.graph.weights.plan import PaddingProof, WeightPlan
from tclint.graph.weights.weight_plan import weight_plan
from tclint.tracing.equality.runs import (
    Arguments,
    CannotTell,
    compare_padded,
    in_double_precision,
    run_original,
)
from tclint.tracing.session.restore_state import random_states_as_they_were
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.in_process import trace_in_process
from tclint.tracing.worker.targets import describe


def verify_objects(
    original: nn.Module,
    padded: nn.Module,
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    plan: WeightPlan | None,
) -> WeightPlan:
    """See `tclint.verify_padding`."""
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    arguments = Arguments(args, dict(kwargs or {}))
    if plan is None:
        try:
            graphs = [trace_in_process(model, args, kwargs) for model in (original, padded)]
            dims = CoupledDims(graphs[0])
            plan = weight_plan(dims, sizes_of_weights(dims, graphs[1]))
        except DimsUnresolved as error:
            return WeightPlan().proved(PaddingProof("unproved", reason=str(error)))
    sites = SiteFinder(roots=(os.getcwd(),))
    try:
        with random_states_as_they_were(), in_double_precision():
            ours, theirs = (copy.deepcopy(model).cpu().double().eval() for model in (original, padded))
            ran = run_original(ours, arguments, plan, sites)
            return plan.proved(compare_padded(theirs, arguments, plan, ran, sites))
    except CannotTell as error:
        reason = str(error)
    except Exception as error:
        reason = f"a run of the models raised {describe(error)}"
    return plan.proved(PaddingProof("unproved", reason=reason))
