"""Writes recorded operator calls as nodes of a torch.fx.Graph, and what they say as Ops.

Placeholders are the model's inputs, get_attr nodes its parameters, buffers and constants, call_function
nodes the operators (OpOverload targets), `operator.getitem` picks from operators with several outputs.
`node.meta["tclint"]` of an operator's node is its Op: where it ran and on what.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from tclint.graph import Op, TensorSpec
from tclint.tracing.operators import OperatorFacts, json_value
from tclint.tracing.origin import Origin, ensure_origin, spec_of

# What fx accepts as a node argument besides nodes and containers of them.
_PLAIN = (
    str,
    int,
    float,
    bool,
    complex,
    slice,
    range,
    torch.dtype,
    torch.device,
    torch.memory_format,
    torch.layout,
)


@dataclass(slots=True)
class Call:
    """A written operator call: its node, and what its arguments tell an Op."""

    node: Node
    index: int
    inputs: tuple[TensorSpec, ...]
    input_names: tuple[str, ...]
    attributes: dict[str, Any]


def _set_arguments_of(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    node.args = args
    if kwargs:
        node.kwargs = kwargs


# The properties do the same, each after taking the node out of the graph's index and before putting it back.
_set_arguments: Callable[[Node, tuple[Any, ...], dict[str, Any]], None] = getattr(
    Node, "_update_args_kwargs", _set_arguments_of
)


class FxWriter:
    """Appends nodes to a torch.fx.Graph and marks the tensors that they make."""

    def __init__(self) -> None:
        self.graph = FxGraph()
        self._ops: list[Op | None] = []
        self._attributes: dict[str, Node] = {}
        self._items: dict[tuple[Node, int], Node] = {}
        self._constants = 0

    @property
    def count(self) -> int:
        """Operators written so far."""
        return len(self._ops)

    def add_input(self, name: str, tensor: torch.Tensor) -> TensorSpec:
        """Declare a model input; `name` is the forward's argument name ('x', 'batch[0]')."""
        node = self.graph.placeholder(name)
        node.meta["spec"] = spec = spec_of(tensor)
        ensure_origin(tensor).node = node
        return spec

    def write(
        self,
        function: Any,
        facts: OperatorFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        before: Mapping[int, TensorSpec] | None = None,
    ) -> Call:
        """Write the node of an operator call; `complete` has to follow.

        Args:
            before: by id, tensor arguments as they were before an operator that changed their shapes.
        """
        index = len(self._ops)
        self._ops.append(None)
        # With a short name fx need not make one of the target; given to create_node, the arguments would be
        # searched for SymInts, which takes longer than the rest.
        node = self.graph.create_node("call_function", function, (), {}, f"op_{index}")
        names: list[str] = []
        specs: list[TensorSpec] = []
        attributes: dict[str, Any] = {}
        given: list[Any] = []
        given_by_name: dict[str, Any] = {}
        count = len(args)
        for position, (name, is_placement, has_default, default) in enumerate(facts.arguments):
            if position < count:
                value = args[position]
            elif name in kwargs:
                value = kwargs[name]
            else:
                if has_default and not is_placement:
                    attributes[name] = default
                continue
            argument: Any
            if isinstance(value, torch.Tensor):
                names.append(name)
                specs.append(spec_of(value) if before is None else before[id(value)])
                argument = self._node_of(value)
            elif isinstance(value, (list, tuple)):
                argument = []
                first = len(names)
                for place, item in enumerate(value):
                    if isinstance(item, torch.Tensor):
                        names.append(f"{name}[{place}]")
                        specs.append(spec_of(item) if before is None else before[id(item)])
                        argument.append(self._node_of(item))
                    else:
                        argument.append(self._argument(item))
                if len(names) == first and not is_placement:
                    attributes[name] = [json_value(item) for item in value]
            else:
                argument = self._argument(value)
                if not is_placement:
                    attributes[name] = json_value(value)
            if position < count:
                given.append(argument)
            else:
                given_by_name[name] = argument
        _set_arguments(node, tuple(given), given_by_name)
        return Call(node, index, tuple(specs), tuple(names), attributes)

    def complete(self, call: Call, op: Op) -> None:
        """Say what a written call is."""
        self._ops[call.index] = op
        call.node.meta["tclint"] = op

    def finish(self, outputs: list[torch.Tensor]) -> tuple[TensorSpec, ...]:
        """Write the output node; the specs of what the model returned."""
        node = self.graph.output(tuple(self._node_of(tensor) for tensor in outputs))
        node.meta["specs"] = specs = tuple(spec_of(tensor) for tensor in outputs)
        return specs

    @property
    def ops(self) -> tuple[Op, ...]:
        """The written operators in order."""
        return tuple(op for op in self._ops if op is not None)

    def _argument(self, value: Any) -> Any:
        if value is None or isinstance(value, _PLAIN):
            return value
        if isinstance(value, (list, tuple)):
            return [self._argument(item) for item in value]
        return str(value)

    def _node_of(self, tensor: torch.Tensor) -> Node:
        origin = ensure_origin(tensor)
        node = origin.node
        if node is None:
            node = origin.node = self._attribute_of(origin, tensor)
        if origin.in_list:
            key = (node, origin.output_index)
            item = self._items.get(key)
            if item is None:
                with self.graph.inserting_after(node):
                    item = self.graph.call_function(operator.getitem, key)
                self._items[key] = item
            return item
        return node

    def _attribute_of(self, origin: Origin, tensor: torch.Tensor) -> Node:
        target = origin.parameter
        if target is None:
            self._constants += 1
            target = f"_constant_{self._constants}"
        node = self._attributes.get(target)
        if node is None:
            # The attribute lives on the user's model, which the graph does not own: hence no get_attr().
            create: Callable[..., Node] = self.graph.create_node
            name = f"attribute_{len(self._attributes)}"
            node = self._attributes[target] = create("get_attr", target, (), {}, name)
            node.meta["spec"] = spec_of(tensor)
        return node
