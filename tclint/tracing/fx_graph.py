"""Writes recorded operator calls as nodes of a torch.fx.Graph.

Placeholders are the model's inputs, get_attr nodes its parameters, buffers and constants, call_function
nodes the operators (OpOverload targets), `operator.getitem` picks from operators with several outputs.
Every call_function node's meta holds, under the keys of `NodeMeta`, where it ran and on what.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypedDict

import torch
from torch.fx import Graph as FxGraph
from torch.fx import Node

from tclint.graph import Cast, TensorSpec
from tclint.graph.op import Checkpoint
from tclint.tracing.origin import Origin, ensure_origin, origin_of, tensors_in
from tclint.tracing.sites import SitePair

_DTYPE_NAMES: dict[torch.dtype, str] = {}

# What fx accepts as a node argument besides nodes and containers of them.
_PLAIN = (str, int, float, bool, complex, torch.dtype, torch.device, torch.memory_format, torch.layout)


class NodeMeta(TypedDict):
    """`node.meta["tclint"]` of a call_function node."""

    name: str
    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]
    module_path: str
    module_type: str
    construct: SitePair
    call: SitePair
    parent: Node | None
    in_place: bool
    aliases_input: bool
    differentiable: bool
    has_own_backward: bool
    checkpoint: Checkpoint | None
    autocast_disabled: bool
    casts: tuple[Cast, ...]


def dtype_name(dtype: torch.dtype) -> str:
    """'float16' for torch.float16."""
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        name = _DTYPE_NAMES[dtype] = str(dtype).removeprefix("torch.")
    return name


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype, strides, and the weight or input that the tensor is; no producer yet."""
    origin = origin_of(tensor)
    strides = tuple(tensor.stride()) if tensor.layout == torch.strided else None
    return TensorSpec(
        shape=tuple(tensor.shape),
        dtype=dtype_name(tensor.dtype),
        strides=strides,
        parameter=origin.parameter if origin else None,
        input_name=origin.input_name if origin else None,
    )


class FxWriter:
    """Appends nodes to a torch.fx.Graph and marks the tensors that they make."""

    def __init__(self) -> None:
        self.graph = FxGraph()
        self.count = 0
        """call_function nodes of operators written so far."""
        self._attributes: dict[str, Node] = {}
        self._items: dict[tuple[Node, int], Node] = {}
        self._constants = 0

    def add_input(self, name: str, tensor: torch.Tensor) -> TensorSpec:
        """Declare a model input; `name` is the forward's argument name ('x', 'batch[0]')."""
        node = self.graph.placeholder(name)
        node.meta["spec"] = spec = spec_of(tensor)
        ensure_origin(tensor).node = node
        return spec

    def reserve(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """Write the node of a composite operator ahead of the operators that it decomposes into."""
        return self._call(function, args, kwargs)

    def add_call(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Any,
        meta: NodeMeta,
        node: Node | None = None,
        *,
        rebind: bool = False,
    ) -> Node:
        """Write an operator call and make its node the origin of its outputs.

        A `node` that was reserved only gets its meta: its parts made the outputs. Outputs that are inputs
        handed back keep their origin, unless `rebind`: the operator changed them.
        """
        if node is not None:
            node.meta["tclint"] = meta
            return node
        node = self._call(function, args, kwargs)
        node.meta["tclint"] = meta
        made = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
        several = isinstance(outputs, (list, tuple))
        kept = () if rebind else tensors_in(args, kwargs)
        for index, tensor in enumerate(made):
            if isinstance(tensor, torch.Tensor) and not any(tensor is given for given in kept):
                origin = ensure_origin(tensor)
                origin.node = node
                origin.output_index = index if several else 0
                origin.input_name = None
                if several:
                    node.meta["several"] = True
        return node

    def finish(self, outputs: list[torch.Tensor]) -> FxGraph:
        """Write the output node and return the graph."""
        node = self.graph.output(tuple(self._argument(tensor) for tensor in outputs))
        node.meta["specs"] = tuple(spec_of(tensor) for tensor in outputs)
        return self.graph

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        self.count += 1
        # Given to create_node, the arguments would be searched for SymInts, which takes longer than the rest.
        node = self.graph.create_node("call_function", function, (), {})
        if args:
            node.args = tuple([self._argument(argument) for argument in args])
        if kwargs:
            node.kwargs = {name: self._argument(argument) for name, argument in kwargs.items()}
        return node

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._node_of(value)
        if value is None or isinstance(value, _PLAIN):
            return value
        if isinstance(value, (list, tuple)):
            return [self._argument(item) for item in value]
        if isinstance(value, (slice, range)):
            return value
        return str(value)

    def _node_of(self, tensor: torch.Tensor) -> Node:
        origin = ensure_origin(tensor)
        node = origin.node
        if node is None:
            node = origin.node = self._attribute_of(origin, tensor)
        if node.meta.get("several"):
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
            node = self._attributes[target] = create("get_attr", target, (), {}, None, None)
            node.meta["spec"] = spec_of(tensor)
        return node
