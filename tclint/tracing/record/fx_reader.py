"""Reads a torch.fx.Graph of ATen operators, the recorder's or torch.export's, as a Graph without torch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from tclint.graph.ops import Graph, Op, TensorSpec
from tclint.tracing.record.fx_writer import FxCall, TensorName
from tclint.tracing.values.aliasing import shares_memory
from tclint.tracing.values.formats import DTYPE_NAMES
from tclint.tracing.values.operators import VIEW_OR_COPY, facts_of, json_value, kind_of, required_facts
from tclint.tracing.values.sites import NOWHERE, SiteFinder

_aten = torch.ops.aten
_TRANSPOSITIONS: tuple[tuple[Any, ...], ...] = (
    (_aten.t.default,),
    (_aten.permute.default, [1, 0]),
    (_aten.transpose.int, 0, 1),
    (_aten.transpose.int, 1, 0),
)


class NotReadable(Exception):
    """The graph calls what is no operator of torch: a module, a Python function, a graph of its own."""


def graph_from_fx(
    traced: GraphModule | FxGraph,
    names: Mapping[str, TensorName] | None = None,
    sites: SiteFinder | None = None,
) -> Graph:
    """The operators, inputs and outputs of a graph whose nodes have `meta["val"]`.

    Linear layers that torch.export has split into a transposition and a product are linear layers again.

    Args:
        traced: the graph, or the module of it.
        names: by their nodes' names, what placeholders stand for; the others are inputs.
        sites: tells user code from library code.

    Raises:
        NotReadable: there is more in the graph than operators of torch.
    """
    graph = traced.graph if isinstance(traced, GraphModule) else traced
    reader = _Reader(names or {}, sites or SiteFinder())
    for node in graph.nodes:
        reader.read(node)
    return Graph(ops=tuple(reader.ops), inputs=tuple(reader.inputs), outputs=reader.outputs)


class _Reader:
    def __init__(self, names: Mapping[str, TensorName], sites: SiteFinder) -> None:
        self.ops: list[Op] = []
        self.inputs: list[TensorSpec] = []
        self.outputs: tuple[TensorSpec, ...] = ()
        self._names = names
        self._sites = sites
        self._made: dict[Node, Any] = {}
        """What nodes made: a TensorSpec, a list of them, or a size."""
        self._indices: dict[Node, int] = {}
        """The indices of the operators, by their nodes."""

    def read(self, node: Node) -> None:
        if node.op == "output":
            self.outputs = tuple(_specs_in([self._given(value) for value in node.args]))
        elif node.op in ("placeholder", "get_attr"):
            self._source(node)
        elif node.op != "call_function":
            raise NotReadable(f"{node.op} {node.target}")
        elif node.target is operator.getitem:
            source, position = node.args
            self._made[node] = self._given(source)[position]
        else:
            self._call(node)

    def _source(self, node: Node) -> None:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            self._made[node] = value
            return
        name = node.meta.get("tclint") or self._names.get(node.name)
        if name is None and node.op == "placeholder":
            name = TensorName(input_name=node.name)
        elif name is None:
            name = TensorName(str(node.target))
        spec = _spec(value, name)
        self._made[node] = spec
        if spec.input_name is not None:
            self.inputs.append(spec)

    def _call(self, node: Node) -> None:
        recorded: FxCall | None = node.meta.get("tclint")
        if recorded is None:
            value = node.meta.get("val")
            if not isinstance(value, (torch.Tensor, list, tuple)):
                self._made[node] = value  # arithmetic with sizes, an assertion
                return
            recorded = self._described(node)
            if recorded is None:
                return
        facts = recorded.facts
        names, specs, attributes = self._arguments(node, recorded)
        construct, line = recorded.construct or NOWHERE, recorded.line or NOWHERE
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path, kind = stack[-1] if stack else ("", "")
        index = self._indices[node] = len(self.ops)
        self.ops.append(
            Op(
                index=index,
                name=facts.name,
                operator=facts.operator,
                kind=kind_of(facts.name, aliases_input=recorded.is_alias),
                inputs=specs,
                outputs=self._outputs(node, recorded, specs),
                input_names=names,
                attributes=attributes,
                module_path=path,
                module_type=kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__,
                construct_site=construct.site,
                construct_library_site=construct.library_site,
                call_site=line.site,
                call_library_site=line.library_site,
                parent=None if recorded.parent is None else self._indices[recorded.parent],
                in_place=facts.in_place,
                differentiable=recorded.differentiable,
                has_own_backward=recorded.has_own_backward,
                checkpoint=recorded.checkpoint,
                autocast_disabled=recorded.autocast_disabled,
                casts=recorded.casts,
            )
        )

    def _described(self, node: Node) -> FxCall | None:
        """What the recorder would have noted of another tracer's node; None where nothing is to be noted."""
        facts = facts_of(node.target)
        if facts is None:
            raise NotReadable(f"{node.op} {node.target}")
        if self._is_transposed_weight(node) and node.users and all(map(self._is_linear, node.users)):
            return None
        is_view = False
        if facts.name in VIEW_OR_COPY:
            is_view = shares_memory(_first_value(node), _values(node.all_input_nodes))
        if self._is_linear(node):
            facts = required_facts(_aten.linear.default)
        line = self._sites.of_trace(node.meta.get("stack_trace") or "")
        return FxCall(facts, {}, None, is_alias=is_view, line=line)

    def _arguments(
        self, node: Node, recorded: FxCall
    ) -> tuple[tuple[str, ...], tuple[TensorSpec, ...], dict[str, Any]]:
        """Names and tensors in schema order, and all other arguments by their names, as Op has them."""
        facts, args, kwargs = recorded.facts, node.args, node.kwargs
        if facts.function is _aten.linear.default and node.target is not facts.function:
            *bias, tensor, weight = args
            assert isinstance(weight, Node)
            args = (tensor, weight.args[0], *bias)
        names: list[str] = []
        specs: list[TensorSpec] = []
        attributes = facts.defaults.copy()
        given: Iterable[Any] = zip(facts.arguments, args, strict=False)
        if kwargs:
            named = [argument for argument in facts.arguments if argument.name in kwargs]
            given = [*given, *((argument, kwargs[argument.name]) for argument in named)]
        for (name, is_placement), argument in given:
            value = self._given(argument)
            if isinstance(value, TensorSpec):
                names.append(name)
                specs.append(value)
                attributes.pop(name, None)
            elif isinstance(value, list) and any(isinstance(item, TensorSpec) for item in value):
                found = [(at, item) for at, item in enumerate(value) if isinstance(item, TensorSpec)]
                names += [f"{name}[{at}]" for at, _ in found]
                specs += [item for _, item in found]
                attributes.pop(name, None)
            elif not is_placement:
                attributes[name] = json_value(value)
        for place, tensor in recorded.read_as.items():
            shape, dtype, strides = _metadata(tensor)
            specs[place] = replace(specs[place], shape=shape, dtype=dtype, strides=strides)
        return tuple(names), tuple(specs), {**attributes, **recorded.settings}

    def _given(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self._made[value]
        return [self._given(item) for item in value] if isinstance(value, (list, tuple)) else value

    def _outputs(
        self, node: Node, recorded: FxCall, inputs: tuple[TensorSpec, ...]
    ) -> tuple[TensorSpec, ...]:
        """What a call made; noted as well, for those that are given it."""
        name = TensorName()
        if not recorded.names and inputs and all(spec.parameter for spec in inputs):
            name = TensorName(inputs[0].parameter)
        value, index = node.meta["val"], len(self.ops)
        specs: list[TensorSpec] = []
        places: list[Any] = []
        for made in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(made, torch.Tensor):
                places.append(made)
                continue
            position = len(specs)
            own = recorded.names[position] if recorded.names else name
            spec = _spec(made, own, index, position)
            if not position:
                spec = replace(spec, triangle=node.meta.get("triangle"))
            specs.append(spec)
            # The model's input that was written to is not that any more for who reads it then.
            places.append(spec if spec.input_name is None else replace(spec, input_name=None))
        self._made[node] = places[0] if isinstance(value, torch.Tensor) else places
        return tuple(specs)

    def _is_linear(self, node: Node) -> bool:
        """Whether a product is that of a linear layer: by a weight that was transposed."""
        is_biased = node.target is _aten.addmm.default
        if not (is_biased or node.target is _aten.mm.default) or node.kwargs:
            return False
        given, weight = node.args[-2:]
        is_weight = isinstance(weight, Node) and weight is not given and self._is_transposed_weight(weight)
        return is_weight and (not is_biased or _values([node.args[0]])[0].dim() == 1)

    def _is_transposed_weight(self, node: Node) -> bool:
        if (node.target, *node.args[1:]) not in _TRANSPOSITIONS:
            return False
        spec = self._given(node.args[0])
        return isinstance(spec, TensorSpec) and spec.parameter is not None and spec.producer is None


def _values(nodes: Iterable[Any]) -> list[torch.Tensor]:
    values = [node.meta.get("val") for node in nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _first_value(node: Node) -> Any:
    value = node.meta["val"]
    return value if isinstance(value, torch.Tensor) else value[0]


def _specs_in(value: Any) -> list[TensorSpec]:
    if isinstance(value, TensorSpec):
        return [value]
    return [spec for item in value for spec in _specs_in(item)] if isinstance(value, list) else []


def _spec(
    tensor: torch.Tensor, name: TensorName, producer: int | None = None, position: int = 0
) -> TensorSpec:
    shape, dtype, strides = _metadata(tensor)
    return TensorSpec(
        shape,
        dtype,
        strides,
        name.parameter,
        producer,
        position,
        name.input_name,
        name.is_derived,
        name.value,
        name.memory,
        name.triangle,
    )


def _metadata(tensor: torch.Tensor) -> tuple[tuple[int, ...], str, tuple[int, ...] | None]:
    """Shape, dtype and strides; sizes that may vary as they were in the example."""
    strides = tuple(map(int, tensor.stride())) if tensor.layout is torch.strided else None
    return tuple(map(int, tensor.shape)), DTYPE_NAMES[tensor.dtype], strides
