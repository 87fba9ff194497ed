"""`torch.compile(model, backend="tclint")`: lints what Dynamo captures, and runs it eagerly.

The report is printed to stderr once the first run is over: when its first graph is called again, else when
Python ends. `report()` gives it at any time, `graph_breaks()` where Dynamo had to leave the graph. Whatever
goes wrong here is a warning: the user's run goes on.
"""

from __future__ import annotations

import atexit
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from tclint.config.keywords import session_settings
from tclint.config.settings import Settings
from tclint.core.units import plural
from tclint.engine.check import check, relative_path
from tclint.engine.report import Report
from tclint.graph.ops import Site
from tclint.integrations.session import print_report, warn
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.objects import Captured

__all__ = ["GraphBreak", "backend", "graph_breaks", "report", "reset"]


@dataclass(frozen=True)
class GraphBreak:
    """A line at which Dynamo ended a graph, because it could not go on."""

    path: str
    line: int
    """0 where Dynamo does not tell."""
    reason: str
    """In Dynamo's words, its first line."""


class _Session:
    """What was captured since the process began, or since `reset`."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.graphs: list[Captured] = []
        self.breaks: list[GraphBreak] = []
        self.seen: set[Any] = set()
        self.printed = 0
        """How many of the graphs were reported on."""


_session = _Session()
_lock = threading.RLock()


def backend(module: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """What torch.compile calls for every graph; returns the graph's own forward.

    Args:
        options: `options=` of torch.compile: keys of `[tool.tclint]`, as {"gpu": ["h100"], "batch": 32}. What
            they leave open is as in the nearest pyproject.toml, compiled, and for training if gradients are
            on.
    """
    forward: Callable[..., Any] = module.forward
    try:
        noted = _note(module, example_inputs, options.get("options") or {})
    except Exception as error:
        _warn(error)
        return forward
    if noted is None:
        return forward
    place: int | None = None

    def run(*args: Any) -> Any:
        nonlocal place
        try:
            if place is None:
                place = noted(args)
            elif place == _session.printed < len(_session.graphs):
                _print()
        except Exception as error:
            place = -1
            _warn(error)
        return forward(*args)

    return run


def report() -> Report:
    """The findings on everything that was captured so far, each graph an entry.

    Raises:
        UsageError: a setting is wrong.
    """
    with _lock:
        graphs, settings = list(_session.graphs), _session.settings
    return _check(graphs, settings or _settings({}))


def graph_breaks() -> tuple[GraphBreak, ...]:
    """Where graphs had to end, in the order in which Dynamo met the lines."""
    return tuple(_session.breaks)


def reset() -> None:
    """Forget what was captured; call `torch.compiler.reset()` too, so that Dynamo captures anew."""
    global _session  # noqa: PLW0603
    _session = _Session()


def _note(
    module: GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any]
) -> Callable[[tuple[Any, ...]], int] | None:
    """What is to be called with the graph's first inputs; None for a graph that is known for other sizes.

    Args:
        example_inputs: stand-ins, some of unknown sizes.
    """
    session = _session
    with _lock:
        if session.settings is None:
            session.settings = _settings(options)
        mark = fingerprint(module, example_inputs)
        if mark in session.seen:
            return None
        session.seen.add(mark)
        ended = _break_of(module)
        if ended is not None and ended not in session.breaks:
            session.breaks.append(ended)

    def on_first_call(args: tuple[Any, ...]) -> int:
        site = first_line(module)
        with _lock:
            where = f" ({relative_path(site.path)}:{site.line})" if site is not None else ""
            name = f"graph {len(session.graphs) + 1}{where}"
            session.graphs.append(captured(module, args, name, site))
            return len(session.graphs) - 1

    return on_first_call


def _settings(options: Mapping[str, Any]) -> Settings:
    stated: dict[str, Any] = {"compiled": True}
    if not torch.is_grad_enabled():
        stated["mode"] = "infer"
    return session_settings(options, stated)


def _break_of(module: GraphModule) -> GraphBreak | None:
    ended = getattr(module, "compile_subgraph_reason", None)
    if not getattr(ended, "graph_break", False):
        return None
    reason = str(getattr(ended, "reason", "")).strip().partition("\n")[0]
    stack = list(getattr(ended, "user_stack", None) or ())
    sites = SiteFinder()
    own = [frame for frame in stack if sites.is_user_file(frame.filename)] or stack
    if not own:
        return GraphBreak("", 0, reason)
    return GraphBreak(relative_path(own[-1].filename), own[-1].lineno or 0, reason)


def _check(graphs: Sequence[Captured], settings: Settings) -> Report:
    run: Callable[..., Report] = torch.compiler.disable(check)  # it may be called from what was compiled
    return run(graphs, settings)


def _print() -> None:
    with _lock:
        session = _session
        graphs = session.graphs[session.printed :]
        session.printed = len(session.graphs)
    if not graphs or session.settings is None:
        return
    breaks = [
        f"{f'{one.path}:{one.line}' if one.line else 'a line that Dynamo does not tell'}: {one.reason}"
        for one in session.breaks
    ]
    end = ""
    if breaks:
        end = "\n".join([f"\n{plural(len(breaks), 'graph break')}:", *(f"  {line}" for line in breaks), ""])
    print_report(_check(graphs, session.settings), end)


def _warn(error: Exception) -> None:
    warn(error, "what torch.compile captured")


@atexit.register
def _print_the_rest() -> None:
    try:
        _print()
    except Exception as error:
        _warn(error)


_MAX_REAL_NUMEL = 4096
"""Integers and masks up to this size keep their values: forwards look at them."""
_WEIGHT = re.compile(r"L_.*?((?:modules_.+?_)*)(parameters|buffers)_(.+?)_*")
_INPUT = re.compile(r"^L_(.+?)_*$")
_LINE = re.compile(r'File "[^"]*", line \d+')
_ROOT = re.compile(r"^L\['\w+'\]\.?")


def captured(module: GraphModule, args: tuple[Any, ...], name: str, site: Site | None) -> Captured:
    """The graph as a model and its inputs, made from what it is called with first.

    Args:
        args: its real inputs, among which newer versions of Dynamo hand over the weights.
    """
    attributes: dict[str, Any] = {}
    inputs: list[Any] = []
    graph, made, named = Graph(), dict[Node, Node](), dict[int, Any]()
    given = iter(args)
    for node in module.graph.nodes:
        value = next(given) if node.op == "placeholder" else None
        weight = _weight_name(node, value) if node.op == "placeholder" else None
        if weight is None:
            if node.op == "placeholder":
                inputs.append(_on_meta(value))
            elif node.op in ("get_attr", "call_module"):
                attributes[node.target] = attrgetter(node.target)(module)
            made[node] = graph.node_copy(node, made.__getitem__)
            made[node].meta = _meta(node)
            if node.op == "placeholder":
                made[node].target = _INPUT.sub(r"\1", str(node.target))
            continue
        if id(value) not in named:
            named[id(value)] = _weight(value)
        attributes[weight] = named[id(value)]
        made[node] = graph.get_attr(weight)
    model = GraphModule(attributes, graph, class_name="CapturedGraph")
    model.train(module.training)
    return Captured(model, tuple(inputs), name, site)


def fingerprint(module: GraphModule, example_inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Equal for two graphs of the same lines and weights that were captured for different sizes."""
    lines = dict.fromkeys(
        tuple(_LINE.findall(node.stack_trace or ""))
        for node in module.graph.nodes
        if node.op.startswith("call")
    )
    weights = (tuple(value.shape) for value in example_inputs if isinstance(value, nn.Parameter))
    return (*lines, *weights)


def first_line(module: GraphModule) -> Site | None:
    """The user's first line that does something in the graph."""
    sites = SiteFinder()
    found = (sites.of_trace(node.stack_trace or "").site for node in module.graph.nodes)
    return next((site for site in found if site is not None), None)


def _weight_name(node: Node, value: Any) -> str | None:
    """The qualified name of the parameter or buffer that an input is; None of other inputs.

    Dynamo names it `L_self_modules_layers_modules_0_parameters_weight_`.
    """
    found = _WEIGHT.fullmatch(str(node.target)) if isinstance(value, torch.Tensor) else None
    if found is None:
        return str(node.target) if isinstance(value, nn.Parameter) else None
    modules, _, name = found.groups()
    return ".".join([*re.split(r"(?:^|_)modules_", modules.rstrip("_"))[1:], name])


def _weight(value: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(False):
        made = torch.empty_like(value, device="meta", requires_grad=False)
        return nn.Parameter(made, value.requires_grad) if isinstance(value, nn.Parameter) else made


def _on_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with torch.inference_mode(False):
        if not value.is_floating_point() and value.device.type == "cpu" and value.numel() <= _MAX_REAL_NUMEL:
            return value.detach().clone()
        return torch.empty_like(value, device="meta", requires_grad=False)


def _meta(node: Node) -> dict[str, Any]:
    """What is known of a node, with modules by their users' names: 'layers.0' for "L['self'].layers.0"."""
    stack = {
        key: (_ROOT.sub("", path), kind)
        for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items()
    }
    return {"nn_module_stack": stack, "stack_trace": node.meta.get("stack_trace")}
