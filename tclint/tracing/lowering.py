"""From the recorded torch.fx graph to tclint's torch-free Graph."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from tclint.graph import Op, TensorSpec
from tclint.tracing.fx_graph import NodeMeta, dtype_name
from tclint.tracing.kinds import kind_of


def lower_ops(graph: FxGraph) -> tuple[Op, ...]:
    """The operator calls of a recorded graph, in order, with `producer` links between them."""
    calls = [node for node in graph.nodes if "tclint" in node.meta]
    indices = {node: index for index, node in enumerate(calls)}
    return tuple(_lower(node, indices) for node in calls)


def lower_outputs(graph: FxGraph) -> tuple[TensorSpec, ...]:
    """What the model returned, flattened, with the ops that made it."""
    calls = [node for node in graph.nodes if "tclint" in node.meta]
    indices = {node: index for index, node in enumerate(calls)}
    for node in graph.nodes:
        if node.op == "output":
            returned = node.args[0]
            return tuple(
                _with_producer(spec, source, indices)
                for spec, source in zip(node.meta["specs"], returned, strict=True)
            )
    return ()


def _lower(node: Node, indices: dict[Node, int]) -> Op:
    meta: NodeMeta = node.meta["tclint"]
    given = _given_arguments(node)
    tensors = _name_tensors(given, meta["input_specs"])
    names: list[str] = []
    specs: list[TensorSpec] = []
    attributes: dict[str, Any] = {}
    for name, value in _in_schema_order(node, given):
        if name in tensors:
            for full_name, source, spec in tensors[name]:
                names.append(full_name)
                specs.append(_with_producer(spec, source, indices))
        elif name not in _PLACEMENT:
            attributes[name] = _json_value(value)
    parent = meta["parent"]
    return Op(
        index=indices[node],
        name=meta["name"],
        kind=kind_of(meta["name"], aliases_input=meta["aliases_input"]),
        inputs=tuple(specs),
        outputs=tuple(
            replace(spec, producer=indices[node], output_index=position)
            for position, spec in enumerate(meta["output_specs"])
        ),
        input_names=tuple(names),
        attributes=attributes,
        module_path=meta["module_path"],
        module_type=meta["module_type"],
        construct_site=meta["construct"].site,
        construct_library_site=meta["construct"].library_site,
        call_site=meta["call"].site,
        call_library_site=meta["call"].library_site,
        parent=None if parent is None else indices[parent],
        in_place=meta["in_place"],
        differentiable=meta["differentiable"],
        has_own_backward=meta["has_own_backward"],
        checkpoint=meta["checkpoint"],
        autocast_disabled=meta["autocast_disabled"],
        casts=meta["casts"],
    )


def _with_producer(spec: TensorSpec, source: Node, indices: dict[Node, int]) -> TensorSpec:
    position = 0
    if source.target is operator.getitem:
        source, position = source.args
    producer = indices.get(source)
    if producer is None:
        return spec
    return replace(spec, producer=producer, output_index=position)


def _given_arguments(node: Node) -> dict[str, Any]:
    """The arguments of the call by schema name, in the order of the call."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        names = _NAMES_WITHOUT_SCHEMA.get(str(node.target), ())
        names = (*names, *(f"argument{position}" for position in range(len(names), len(node.args))))
    else:
        names = tuple(argument.name for argument in schema.arguments)
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _in_schema_order(node: Node, given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every argument of the schema with its given or default value."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        yield from given.items()
        return
    for argument in schema.arguments:
        if argument.name in given:
            yield argument.name, given[argument.name]
        elif argument.has_default_value():
            yield argument.name, argument.default_value


def _name_tensors(
    given: dict[str, Any], specs: tuple[TensorSpec, ...]
) -> dict[str, list[tuple[str, Node, TensorSpec]]]:
    """The tensor arguments with the metadata that they had at the time of the call."""
    remaining = iter(specs)
    tensors: dict[str, list[tuple[str, Node, TensorSpec]]] = {}
    for name, value in given.items():
        if isinstance(value, Node):
            tensors[name] = [(name, value, next(remaining))]
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Node) for item in value):
            tensors[name] = [
                (f"{name}[{position}]", item, next(remaining))
                for position, item in enumerate(value)
                if isinstance(item, Node)
            ]
    return tensors


_NAMES_WITHOUT_SCHEMA = {"flex_attention": ("query", "key", "value")}

# Says where a tensor lives, which on the recording machine is never the GPU that is priced.
_PLACEMENT = frozenset({"device", "pin_memory", "non_blocking", "generator"})


def _json_value(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    return str(value).removeprefix("torch.")
