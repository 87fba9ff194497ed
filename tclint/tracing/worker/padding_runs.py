"""Models and their padded copies, really built and run, for a comparison of both."""

from __future__ import annotations

import copy
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.graph.dims.coupled import CoupledDims, DimsUnresolved
from tclint.graph.dims.realized import sizes_of_weights
from tclint.graph.weights.plan import PaddingProof, WeightPlan
from tclint.graph.weights.weight_plan import weight_plan
from tclint.tracing.equality.fewer_layers import shorten
from tclint.tracing.equality.runs import (
    Arguments,
    CannotTell,
    Original,
    compare_padded,
    in_double_precision,
    run_original,
)
from tclint.tracing.inputs.real import filled, real_inputs
from tclint.tracing.patches.devices import DeviceRewriter
from tclint.tracing.patches.environment import without_gpu
from tclint.tracing.patches.stored_weights import random_weights, without_initialisation
from tclint.tracing.session.build import on_meta
from tclint.tracing.session.weights import is_lazy
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.apart import Keep, apart
from tclint.tracing.worker.entry import TraceOptions, put_into_mode, split_built
from tclint.tracing.worker.objects import name_of, trace_given
from tclint.tracing.worker.project_files import import_roots
from tclint.tracing.worker.targets import LoadedTarget, describe, load_target, parse_target, user_errors


def run_of_padding(text: str, options: TraceOptions, request: dict[str, Any]) -> None:
    """Build a target in float64, run it, and write what came of it to the files that the request names.

    The original's process leaves its runs under `runs`, those of the padded model are compared with them; the
    proof is written by whoever finds one.

    Raises:
        TargetError: the model could not be built.
        Exception: its forward failed.
    """
    with open(request["plan"], encoding="utf-8") as file:
        plan = WeightPlan.from_json(json.load(file))
    target = parse_target(text)
    folder = os.path.dirname(os.path.abspath(target.path)) if target.path else os.getcwd()
    sites = SiteFinder(roots=(folder, os.getcwd(), *(import_roots(target.path) if target.path else ())))
    with (
        without_gpu(),
        DeviceRewriter(lambda _: None),
        random_weights(sites),
        without_initialisation(),  # every weight is filled anew for each run
        in_double_precision(),
    ):
        torch.manual_seed(0)
        loaded = load_target(target, options.arguments)
        try:
            with user_errors(f"{target.attribute} in {target.container}", sites.is_user_file):
                fewer = request["fewer_layers"]
                built = on_meta(loaded.function, sites)[0] if fewer else loaded.function()
                model, returned, _ = split_built(built, target.attribute)
            put_into_mode(model, options, sites)
            model.double()
            layers = ""
            if fewer:
                plan, layers = shorten(model, plan)
            calls = _calls(loaded, model, returned, options, request)
            if not request["is_padded"]:
                given = None if request["given"] is None else torch.load(request["given"])
                torch.save(_original(model, calls, plan, sites, given), request["runs"])
                return
            # This process runs the target's code anyway, so that the file of its like need not be mistrusted.
            original: Original = torch.load(request["runs"], weights_only=False)
            arguments = next(calls)
            _materialise(model, arguments.with_tensors(original.inputs))
            proof = replace(compare_padded(model, arguments, plan, original, sites), layers=layers)
        except CannotTell as error:
            proof = PaddingProof("unproved", reason=str(error))
    with open(request["proof"], "w", encoding="utf-8") as file:
        json.dump(proof.to_json(), file)


def _original(
    model: nn.Module,
    calls: Iterator[Arguments],
    plan: WeightPlan,
    sites: SiteFinder,
    given: dict[str, torch.Tensor] | None,
) -> Original:
    """What runs of the original come to on the first arguments that its forward takes."""
    first: Exception | None = None
    for arguments in calls:
        try:
            _materialise(model, arguments)
            return run_original(model, arguments, plan, sites, given)
        except CannotTell:
            raise
        except Exception as error:
            first = first or error
    if first is None:
        raise CannotTell("running it would take too long")
    raise first


def _materialise(model: nn.Module, arguments: Arguments) -> None:
    """Give lazy parameters their shapes."""
    if any(is_lazy(parameter) for parameter in model.parameters()):
        with torch.no_grad():
            model(*arguments.args, **arguments.kwargs)


def _calls(
    loaded: LoadedTarget, model: nn.Module, returned: Any, options: TraceOptions, request: dict[str, Any]
) -> Iterator[Arguments]:
    """What to call the forward with: the target's inputs, cut to each of the wanted shapes."""
    if options.phase is not None:
        raise TargetError("--phase makes inputs without values; leave it out")
    specs = next((specs for _, specs in options.input_sets), options.inputs)
    traced = [(name, dtype, tuple(shape)) for name, dtype, shape in request["inputs"]]
    inputs = real_inputs(loaded.module, model, returned, specs, traced)
    whole = Arguments(inputs.args, inputs.kwargs)
    for shapes in request["shapes"]:
        torch.manual_seed(0)
        cut = _cut(whole, shapes)
        tensors = [filled(tensor, model) for tensor in cut.tensors]
        yield cut.with_tensors(
            [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors]
        )


def _cut(arguments: Arguments, shapes: Sequence[Sequence[int]]) -> Arguments:
    """The arguments' tensors cut to shapes, where these are of the same tensors; else as they are."""
    tensors = arguments.tensors
    if [tensor.dim() for tensor in tensors] != list(map(len, shapes)):
        return arguments
    return arguments.with_tensors(
        [tensor[tuple(slice(size) for size in shape)] for tensor, shape in zip(tensors, shapes, strict=True)]
    )


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
            graphs = [trace_given(model, args, kwargs, Settings()) for model in (original, padded)]
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
