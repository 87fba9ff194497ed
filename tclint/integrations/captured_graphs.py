"""Graphs of Dynamo as models: weights under the names that their user gave, everything on meta."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from tclint.graph.ops import Site
from tclint.tracing.values.sites import SiteFinder
from tclint.tracing.worker.objects import Captured

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
