"""trace_callable: the tracer for notebooks and other tools, in the caller's own process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tclint.core.errors import TargetError
from tclint.graph.ops import Graph
from tclint.tracing.inputs.given import InferenceFailed, given_inputs
from tclint.tracing.inputs.inference import infer_inputs
from tclint.tracing.session.build import on_meta
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.entry import split_built, trace_or_explain
from tclint.tracing.worker.targets import describe, site_of, where_in_user_code


def trace_in_process(
    build: Callable[[], Any], inputs: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Graph:
    """See `tclint.trace`."""
    root = site_of(build)
    name = getattr(build, "__qualname__", None) or type(build).__name__
    roots = [os.getcwd()]
    if root is not None and os.path.isabs(root.path):
        roots.append(os.path.dirname(root.path))
    sites = SiteFinder(roots=roots, files=(root.path,) if root is not None else ())
    started = time.perf_counter()
    try:
        built, assumed = on_meta(build, sites)
    except Exception as error:
        line = where_in_user_code(error, sites.is_user_file)
        raise TargetError(f"{name} raised {describe(error)}{line}.") from error
    model, returned = split_built(built, name)
    if inputs is not None:
        chosen = given_inputs(inputs, "inputs")
    elif kwargs:
        chosen = given_inputs((), "inputs")
    elif returned is not None:
        chosen = given_inputs(returned, name)
    else:
        try:
            chosen = infer_inputs(model)
        except InferenceFailed as error:
            raise TargetError(
                f"The inputs of {name} cannot be inferred, because {error}: pass inputs=."
            ) from None
    if kwargs:
        chosen = replace(chosen, kwargs={**chosen.kwargs, **kwargs})
    metadata = {"inputs_from": chosen.source, "build_s": time.perf_counter() - started}
    chosen = chosen.with_assumptions(assumed)
    return trace_or_explain(model, chosen, sites, root, metadata, name, "inputs=")
