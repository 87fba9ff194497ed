"""Reads a torch.fx.Graph of ATen operators, such as torch.export makes, as a Graph without torch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from tclint.graph.ops import Graph, Op, TensorSpec
from tclint.tracing.record.kinds import VIEW_OR_COPY, kind_of
from tclint.tracing.values.aliasing import shares_memory
from tclint.tracing.values.dtypes import DTYPE_NAMES
from tclint.tracing.values.operators import Argument, facts_of, json_value, required_facts
from tclint.tracing.values.sites import SiteFinder

_aten = torch.ops.aten
_TRANSPOSITIONS: tuple[tuple[Any, ...], ...] = (
    (_aten.t.default,),
    (_aten.permute.default, [1, 0]),
    (_aten.transpose.int, 0, 1),
    (_aten.transpose.int, 1, 0),
)


class TensorName(NamedTuple):
    """Which of the model's weights or inputs a placeholder is."""

    parameter: str | None = None
    input_name: str | None = None


class NotReadable(Exception):
    """The graph calls what is no operator of torch: a module, a Python function, a graph of its own."""


def graph_from_fx(
    traced: GraphModule | FxGraph,
    names: Mapping[str, TensorName] | None = None,
    sites: SiteFinder | None = None,
) -> Graph:
    """The operators, inputs and outputs of a graph whose nodes have `meta["val"]`.

    Linear layers that torch has split into a transposition and a product are linear layers again.

    Args:
        traced: the graph, or the module of it.
        names: by their nodes' names, what placeholders and outputs stand for; the others are inputs.
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
        name = self._names.get(node.name)
        if name is None and node.op == "placeholder":
            name = TensorName(input_name=node.name)
        elif name is None:
            name = TensorName(str(node.target))
        shape, dtype, strides = _metadata(value)
        spec = TensorSpec(shape, dtype, strides, name.parameter, input_name=name.input_name)
        self._made[node] = spec
        if spec.input_name is not None:
            self.inputs.append(spec)

    def _call(self, node: Node) -> None:
        value = node.meta.get("val")
        if not isinstance(value, (torch.Tensor, list, tuple)):
            self._made[node] = value  # arithmetic with sizes, an assertion
            return
        facts, args, kwargs = facts_of(node.target), node.args, node.kwargs
        if facts is None:
            raise NotReadable(f"{node.op} {node.target}")
        if self._is_transposed_weight(node) and node.users and all(map(self._is_linear, node.users)):
            return
        if self._is_linear(node):
            facts = required_facts(_aten.linear.default)
            *bias, given, weight = args
            assert isinstance(weight, Node)
            args = (given, weight.args[0], *bias)
        names, specs, attributes = self._arguments(facts.arguments, facts.defaults, args, kwargs)
        made = value if isinstance(value, (list, tuple)) else [value]
        outputs = self._outputs(node, made, specs)
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path, kind = stack[-1] if stack else ("", "")
        is_view = facts.name in VIEW_OR_COPY and shares_memory(made[0], _values(node.all_input_nodes))
        self.ops.append(
            Op(
                index=len(self.ops),
                name=facts.name,
                kind=kind_of(facts.name, aliases_input=is_view),
                inputs=specs,
                outputs=outputs,
                input_names=names,
                attributes=attributes,
                module_path=path,
                module_type=kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__,
                call_site=self._sites.of_trace(node.meta.get("stack_trace") or "").site,
                in_place=facts.in_place,
                operator=facts.operator,
            )
        )

    def _arguments(
        self,
        arguments: tuple[Argument, ...],
        defaults: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[tuple[str, ...], tuple[TensorSpec, ...], dict[str, Any]]:
        """Names and tensors in schema order, and all other arguments by their names, as Op has them."""
        names: list[str] = []
        specs: list[TensorSpec] = []
        attributes = dict(defaults)
        named = ((argument, kwargs[argument.name]) for argument in arguments if argument.name in kwargs)
        for (name, is_placement), value in (*zip(arguments, args, strict=False), *named):
            given = self._given(value)
            found = list(_named_specs(name, given))
            names += [place for place, _ in found]
            specs += [spec for _, spec in found]
            if found:
                attributes.pop(name, None)
            elif not is_placement:
                attributes[name] = json_value(given)
        return tuple(names), tuple(specs), attributes

    def _given(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self._made[value]
        return [self._given(item) for item in value] if isinstance(value, (list, tuple)) else value

    def _outputs(
        self, node: Node, made: Iterable[Any], inputs: tuple[TensorSpec, ...]
    ) -> tuple[TensorSpec, ...]:
        """What a call made; noted as well, for those that are given it."""
        parameters = [spec.parameter for spec in inputs]
        parameter = parameters[0] if parameters and None not in parameters else None
        specs: list[TensorSpec] = []
        places: list[Any] = []
        for value in made:
            if isinstance(value, torch.Tensor):
                specs.append(TensorSpec(*_metadata(value), parameter, len(self.ops), len(specs)))
            places.append(specs[-1] if isinstance(value, torch.Tensor) else value)
        self._made[node] = places[0] if isinstance(node.meta["val"], torch.Tensor) else places
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


def _named_specs(name: str, given: Any) -> Iterable[tuple[str, TensorSpec]]:
    if isinstance(given, TensorSpec):
        yield name, given
    elif isinstance(given, list):
        for place, item in enumerate(given):
            if isinstance(item, TensorSpec):
                yield f"{name}[{place}]", item


def _specs_in(value: Any) -> list[TensorSpec]:
    if isinstance(value, TensorSpec):
        return [value]
    return [spec for item in value for spec in _specs_in(item)] if isinstance(value, list) else []


def _metadata(tensor: torch.Tensor) -> tuple[tuple[int, ...], str, tuple[int, ...] | None]:
    """Shape, dtype and strides; sizes that may vary as they were in the example."""
    strides = tuple(map(int, tensor.stride())) if tensor.layout is torch.strided else None
    return tuple(map(int, tensor.shape)), DTYPE_NAMES[tensor.dtype], strides
