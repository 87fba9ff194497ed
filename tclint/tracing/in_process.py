"""trace_callable: the tracer for notebooks and other tools, in the caller's own process."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from tclint.errors import TargetError
from tclint.graph import Graph, Site
from tclint.tracing.build import build_model
from tclint.tracing.examples import InferenceFailed, call_inputs, infer_inputs
from tclint.tracing.session import trace_model
from tclint.tracing.sites import SiteFinder


def trace_in_process(
    build: Callable[[], Any], inputs: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Graph:
    """See `tclint.trace`."""
    root = site_of(build)
    sites = SiteFinder(
        roots=(os.getcwd(), *((os.path.dirname(root.path),) if root and os.path.isabs(root.path) else ())),
        files=(root.path,) if root else (),
    )
    started = time.perf_counter()
    built = build_model(build, sites)
    build_s = time.perf_counter() - started
    returned = None
    if isinstance(built, tuple) and built and isinstance(built[0], nn.Module):
        built, returned = built[0], built[1] if len(built) == 2 else built[1:]
    if not isinstance(built, nn.Module):
        raise TargetError(f"the callable returned {type(built).__name__}, not an nn.Module.")
    assumptions: tuple[Any, ...] = ()
    args: tuple[Any, ...]
    if inputs is not None or kwargs:
        args, keywords = call_inputs(() if inputs is None else inputs)
        keywords = {**keywords, **(kwargs or {})}
    elif returned is not None:
        args, keywords = call_inputs(returned)
    else:
        try:
            args, keywords, assumption = infer_inputs(built)
        except InferenceFailed as error:
            raise TargetError(f"{error}; pass inputs=... to tclint.trace.") from error
        assumptions = (assumption,)
    return trace_model(
        built,
        args,
        keywords,
        sites,
        assumptions=assumptions,
        root_site=root,
        metadata={"build_s": build_s},
    )


def site_of(target: Any) -> Site | None:
    """Where a function or class is defined."""
    target = inspect.unwrap(target) if callable(target) else target
    code = getattr(target, "__code__", None)
    if code is not None:
        return Site(code.co_filename, code.co_firstlineno, target.__name__)
    try:
        path = inspect.getsourcefile(target)
        _, line = inspect.getsourcelines(target)
    except (TypeError, OSError):
        return None
    return Site(path, line, getattr(target, "__qualname__", "")) if path else None
