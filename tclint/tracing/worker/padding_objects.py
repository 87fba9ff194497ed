"""Two models of the caller's, compared where nothing of it is seen."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Mapping
from typing import Any

from torch import nn

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
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
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.apart import Keep, apart
from tclint.tracing.worker.objects import name_of, trace_given
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
    if plan is None:
        try:
            graphs = [trace_given(model, args, kwargs) for model in (original, padded)]
            dims = CoupledDims(graphs[0])
            plan = weight_plan(dims, sizes_of_weights(dims, graphs[1]))
        except DimsUnresolved as error:
            return WeightPlan().proved(PaddingProof("unproved", reason=str(error)))
    try:
        # Made here, because a child cannot read what lies on a GPU.
        ours, theirs = (copy.deepcopy(model).cpu().double().eval() for model in (original, padded))
        arguments = Arguments(args, dict(kwargs or {}))
        arguments = arguments.with_tensors([tensor.cpu() for tensor in arguments.tensors])
        compare = functools.partial(_compared, ours, theirs, arguments, plan)
        return plan.proved(apart(compare, name_of(original), Settings().timeout_s))
    except TargetError as error:
        reason = str(error)
    except Exception as error:
        reason = f"a run of the models raised {describe(error)}"
    return plan.proved(PaddingProof("unproved", reason=reason))


def _compared(
    original: nn.Module, padded: nn.Module, arguments: Arguments, plan: WeightPlan, _keep: Keep
) -> PaddingProof:
    sites = SiteFinder(roots=(os.getcwd(),))
    try:
        with in_double_precision():
            ran = run_original(original, arguments, plan, sites)
            return compare_padded(padded, arguments, plan, ran, sites)
    except CannotTell as error:
        return PaddingProof("unproved", reason=str(error))
