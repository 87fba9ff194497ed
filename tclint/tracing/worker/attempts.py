"""Traces a built model on its inputs; where these were inferred, on one guess after another."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from torch import nn

from tclint.core.errors import TargetError
from tclint.graph.ops import Assumption, Graph, Site
from tclint.tracing.inputs.given import ADVICE, CallInputs
from tclint.tracing.inputs.repair.plausibility import absurdity, options_for, unknown_inputs
from tclint.tracing.inputs.repair.search import InputSearch
from tclint.tracing.inputs.training_steps import batch_inputs, training_step_as_forward, trains_in_steps
from tclint.tracing.session.trace import trace_model
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.failures import forward_error


def trace_or_explain(
    model: nn.Module,
    inputs: CallInputs,
    sites: SiteFinder,
    root_site: Site | None,
    metadata: dict[str, Any],
    name: str,
    option: str,
) -> Graph:
    """Trace the model; what its forward raises becomes one sentence.

    Args:
        name: of the model, for the message.
        option: how the user gives other inputs: '--input' or 'inputs='.

    Raises:
        TargetError: the forward failed.
    """
    trace = functools.partial(
        _traced, sites=sites, site=root_site, metadata=metadata, name=name, option=option
    )
    if not trains_in_steps(model):
        return trace(model, inputs)
    try:
        batches = batch_inputs(model, inputs, sites)
        with training_step_as_forward(model):
            return trace(model, batches)
    except TargetError as error:
        reason = str(error).rstrip(".")
        told = Assumption(f"its forward was traced, without the loss, because {reason}")
        try:
            return trace(model, inputs.with_assumptions((told,)))
        except TargetError:
            raise error from None


def _traced(
    model: nn.Module,
    inputs: CallInputs,
    *,
    sites: SiteFinder,
    site: Site | None,
    metadata: dict[str, Any],
    name: str,
    option: str,
) -> Graph:
    first: TargetError | None = None
    cause: Exception | None = None
    doubtful: Graph | None = None
    absurd: tuple[Graph, str] | None = None
    missed = False  # whether a guess failed that nothing states
    search = InputSearch(model, inputs)
    for tried in search:
        try:
            graph = trace_model(
                model,
                tried.args,
                tried.kwargs,
                sites,
                assumptions=tried.assumptions,
                root_site=site,
                metadata=metadata,
            )
            if tried.source == "inferred":
                is_doubtful = tried.basis == "repair" or (missed and tried.basis == "guess")
                if is_doubtful and (reason := absurdity(graph)) is not None:
                    absurd = absurd or (graph, reason)
                    continue
                if search.doubts(graph):
                    doubtful, missed = doubtful or graph, True
                    continue
                graph = _with_options(graph, is_doubtful=is_doubtful)
            return graph
        except (TargetError, KeyboardInterrupt):
            raise
        except BaseException as error:
            problem = forward_error(error, model, tried, sites, name, option)
            if not isinstance(problem, TargetError) or not isinstance(error, Exception):
                raise problem from None
            if first is None:
                first, cause = problem, error
            missed = missed or tried.basis != "stated"
            search.failed(error)
    if doubtful is not None:
        return _with_options(doubtful, is_doubtful=True)
    if absurd is not None:
        raise TargetError(unknown_inputs(*absurd, name, option)) from cause
    assert first is not None
    raise first from cause


def _with_options(graph: Graph, *, is_doubtful: bool) -> Graph:
    """What was assumed about the inputs ends with the options that give them, to be pasted and corrected.

    Args:
        is_doubtful: whether the first guess failed, and others were tried until the forward ran.
    """
    options = options_for(graph)
    advice = f"; to set others: {options}" if options else ADVICE
    assumptions = [
        dataclasses.replace(
            assumption, what=assumption.what.removesuffix(ADVICE) + advice, is_doubtful=is_doubtful
        )
        if assumption.what.endswith(ADVICE)
        else assumption
        for assumption in graph.assumptions
    ]
    return dataclasses.replace(graph, assumptions=tuple(assumptions))
