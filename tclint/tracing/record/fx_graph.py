"""A traced Graph as a torch.fx.Graph, for tools that work on those."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from tclint.graph.ops import Graph, Op, TensorSpec

_TORCH_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


def to_fx(graph: Graph) -> FxGraph:
    """See `tclint.to_fx`."""
    return _Writer(graph).write()


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._fx = FxGraph()
        self._made: dict[int, Node] = {}
        """By index of the operator."""
        self._inputs: dict[str | None, Node] = {}
        self._items: dict[tuple[Node, int], Node] = {}
        self._attributes: dict[str, Node] = {}
        self._constants = 0
        self._shapes = {parameter.name: parameter.shape for parameter in graph.parameters}

    def write(self) -> FxGraph:
        for spec in self._graph.inputs:
            node = self._fx.placeholder(re.sub(r"\W+", "_", spec.input_name or "input").strip("_"))
            node.target = node.name  # which fx made unique, and a name that Python allows
            node.meta["spec"] = spec
            self._inputs[spec.input_name] = node
        read = {spec.producer for op in self._graph.ops for spec in op.inputs}
        read |= {spec.producer for spec in self._graph.outputs}
        composite = {op.parent for op in self._graph.ops}
        for op in self._graph.ops:
            # What a composite operator did stands in its parts, which made its outputs.
            if op.index not in composite or op.index in read:
                self._made[op.index] = self._call(op)
        self._fx.output(tuple(self._node_of(spec) for spec in self._graph.outputs))
        return self._fx

    def _call(self, op: Op) -> Node:
        target = _target_of(op)
        args, kwargs = self._arguments(op, target)
        node = self._fx.call_function(target, args, kwargs)
        node.meta["tclint"] = op
        site = op.call_site
        if site is not None:
            node.meta["stack_trace"] = f'File "{site.path}", line {site.line}, in {site.function}'
        return node

    def _arguments(self, op: Op, target: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = {name: self._node_of(spec) for name, spec in zip(op.input_names, op.inputs, strict=True)}
        schema = getattr(target, "_schema", None)
        if schema is None:
            return tuple(given.values()), {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        is_positional = True
        for argument in schema.arguments:
            name = argument.name
            value: Any
            if name in given:
                value = given[name]
            elif any(key.startswith(f"{name}[") for key in given):
                value = _listed(name, given)
            elif name in op.attributes and not (
                argument.has_default_value() and op.attributes[name] == argument.default_value
            ):
                value = _as_torch_has_it(op.attributes[name], str(argument.type))
            elif argument.has_default_value():
                is_positional = False
                continue
            else:
                value = None
            if is_positional and not argument.kwarg_only:
                args.append(value)
            else:
                kwargs[name] = value
        return tuple(args), kwargs

    def _node_of(self, spec: TensorSpec) -> Node:
        if spec.producer is not None:
            node = self._made[spec.producer]
            place = _place_of(spec, node.meta["tclint"], node.target)
            return node if place is None else self._item(node, place)
        if spec.input_name in self._inputs:
            return self._inputs[spec.input_name]
        return self._attribute(spec)

    def _item(self, node: Node, place: int) -> Node:
        item = self._items.get((node, place))
        if item is None:
            item = self._items[node, place] = self._fx.call_function(operator.getitem, (node, place))
        return item

    def _attribute(self, spec: TensorSpec) -> Node:
        name = spec.parameter
        if name is None or spec.is_derived or self._shapes.get(name) != spec.shape:
            # Each its own: which of them are the same is not known.
            self._constants += 1
            name = f"_constant_{self._constants}"
        node = self._attributes.get(name)
        if node is None:
            # get_attr() would look for the attribute on a module, which the graph does not have.
            create: Callable[..., Node] = self._fx.create_node
            node = self._attributes[name] = create("get_attr", name, (), {})
            node.meta["spec"] = spec
        return node


def _target_of(op: Op) -> Any:
    if not op.operator:
        raise LookupError(
            f"the graph does not say which {op.name!r} of torch it holds: trace the model again"
        )
    namespace, _, name = op.operator.partition("::")
    name, _, overload = name.partition(".")
    try:
        found = getattr(getattr(torch.ops, namespace), name)
        return found if namespace == "higher_order" else getattr(found, overload or "default")
    except (AttributeError, RuntimeError):
        raise LookupError(
            f"torch has no operator {op.operator!r} here: import the library that defines it"
        ) from None


def _listed(name: str, given: dict[str, Node]) -> list[Node | None]:
    """Tensors of a list argument, with None for the places between them that have none."""
    places = {int(key[len(name) + 1 : -1]): node for key, node in given.items() if key.startswith(f"{name}[")}
    return [places.get(place) for place in range(max(places) + 1)]


def _place_of(spec: TensorSpec, op: Op, target: Any) -> int | None:
    """Where among the results of an operator a tensor is; None where it is the only result."""
    schema = getattr(target, "_schema", None)
    returns = [str(result.type) for result in schema.returns] if schema is not None else []
    if len(returns) == 1 and not returns[0].startswith("List"):
        return None
    if len(returns) > 1:
        return [place for place, kind in enumerate(returns) if "Tensor" in kind][spec.output_index]
    return spec.output_index if returns or len(op.outputs) > 1 else None


def _as_torch_has_it(value: Any, kind: str) -> Any:
    """An attribute of an Op (JSON types only) as the operator takes it; `kind` is the schema's type."""
    if isinstance(value, str) and "str" not in kind:
        found = getattr(torch, value, None)
        if isinstance(found, _TORCH_CONSTANTS):
            return found
        return complex(value)
    return value
