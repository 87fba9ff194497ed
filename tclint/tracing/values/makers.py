"""What made a traced tensor: a walk from the tensor back through the graph that is being recorded."""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from tclint.tracing.values.operators import facts_of
from tclint.tracing.values.origin import origin_of


def maker_of(tensor: torch.Tensor) -> Node | None:
    """The operator call that made the tensor; None for inputs, weights and constants."""
    origin = origin_of(tensor)
    return None if origin is None else origin.maker


def call_of(node: Node) -> Node | None:
    """The operator call whose result, or one of whose results, a node is."""
    if node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node if node.op == "call_function" else None


def operator_name(call: Node) -> str:
    """The name of the operator, as Op.name has it: 'add'."""
    facts = facts_of(call.target)
    return call.name if facts is None else facts.name
