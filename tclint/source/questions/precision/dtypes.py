"""Dtypes of tensors, as they follow from casts, autocast and the operations that make the tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tclint.graph.ops.op_tables import autocast_lists
from tclint.source.questions.flow import KEEPS, Flow
from tclint.source.questions.precision.autocasts import Autocasts
from tclint.source.run.values import Constant, Event, Region, Symbol, Thing, Value, constant_of, options_of

HALF_DTYPES = frozenset({"torch.float16", "torch.bfloat16"})
"""The names of the 16-bit floating-point dtypes."""
_FLOATS = ("torch.float16", "torch.float32", "torch.float64")
_OPERATORS = {"@": "matmul", "**": "pow", "+": "add", "-": "sub", "*": "mul", "/": "div", "[]": "index"} | {
    "+=": "add",
    "-=": "sub",
    "*=": "mul",
    "/=": "div",
}
_ATEN = {
    "cross_entropy": "cross_entropy_loss",
    "kl_div_loss": "kl_div",
    "bce_with_logits_loss": "binary_cross_entropy_with_logits",
    "bce_loss": "binary_cross_entropy",
    "interpolate": "upsample_nearest2d",
    "rnn": "rnn_tanh",
    "multihead_attention": "linear",
    "p_re_lu": "prelu",
}
"""Name in torch.nn or torch.nn.functional -> ATen's name, where they differ."""
_MIXES = frozenset(
    {"add", "sub", "mul", "div", "cat", "concat", "stack", "hstack", "vstack", "where", "maximum", "minimum"}
    | {"lerp", "rsub", "true_divide"}
)
"""Operations whose result has the widest dtype of their inputs; the results of others have the first's."""
_TRUTHS = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "not", "~", "eq", "ne", "lt", "le", "gt", "ge", "bool"}
)
_FLOAT32 = frozenset({"zeros", "ones", "rand", "randn", "empty", "linspace", "eye", "normal"})
_ABOUT = frozenset({"shape", "ndim", "dtype", "device"})


def operator_of(event: Event, layer: str = "") -> str:
    """ATen's name for the operator that an event computes: 'matmul' for `@`, 'layer_norm' for a LayerNorm.

    Args:
        layer: the class of torch.nn whose forward the event is.
    """
    name = _OPERATORS.get(event.name, event.name.rpartition(".")[2])
    if layer:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", layer).lower()
        name = re.sub(r"norm[123]d$", "norm", name)
    return _ATEN.get(name, name)


class Dtypes:
    """Answers about the tensors of one program."""

    def __init__(self, flow: Flow, autocasts: Autocasts) -> None:
        self.flow = flow
        self.facts = flow.facts
        self.autocasts = autocasts
        self.lists = autocast_lists()
        self._known: dict[Value, str | None] = {}

    def of(self, value: Value | None) -> str:
        """The dtype of a tensor, such as 'torch.float16'; '' if it may be several or is unknown."""
        return self._of(value) or ""

    def autocast(self, event: Event) -> tuple[Region, Thing, str] | None:
        """The autocast region around an event that is or may be enabled, with its context and dtype."""
        found = self.autocasts.around(event)
        if found is None or self.facts.is_on(found[1], event.path) is False:
            return None
        return *found, self.autocasts.dtype_on_gpu(found[1])

    def cast_by(self, value: Value | None) -> Region | None:
        """The autocast region that gave a tensor its 16-bit dtype."""
        for event in self.facts.made_by(value):
            found = self.autocast(event)
            if found is not None and found[2] in HALF_DTYPES and self.of(event.result) == found[2]:
                return found[0]
        return None

    # -- one value; None: no tensor, so that it has no part in the dtype of what is computed with it

    def _of(self, value: Value | None) -> str | None:
        found = {self._one(option) for option, _ in options_of(value)} if value is not None else {None}
        return found.pop() if len(found) == 1 else ""

    def _one(self, value: Value) -> str | None:
        if not isinstance(value, Thing):
            return None
        if value not in self._known:
            self._known[value] = ""
            self._known[value] = self._made(value)
        return self._known[value]

    def _made(self, thing: Thing) -> str | None:
        made, written = thing.made, thing.fields.get("@dtype")
        if thing.kind == "number" or self._is_size(thing):
            return None
        if written is not None and (made is None or made.kind in ("to", "factory", "convert")):
            return written.name if isinstance(written, Symbol) else ""
        if made is None:
            return "torch.float32" if "@parameter of" in thing.fields else ""
        if made.kind == "to":
            return self._of(made.arguments.get("other", made.subject))
        if made.kind == "factory":
            name = made.name.rpartition(".")[2]
            if name.endswith("_like"):
                return self._of(made.first)
            return "torch.float32" if name in _FLOAT32 else ""
        return self._computed(made) if made.kind in ("op", "forward", "call") else ""

    def _is_size(self, thing: Thing) -> bool:
        operator, operands = thing.operation or ("", ())
        if operator == "." and constant_of(operands[1]) in _ABOUT:
            return True
        return bool(operands) and all(
            isinstance(item, Constant)
            or (isinstance(item, Thing) and (item.kind == "number" or self._is_size(item)))
            for item in operands
        )

    def _computed(self, event: Event) -> str | None:
        module = next(self.facts.things(event.subject), None) if event.kind == "forward" else None
        layer = self.flow.kind(module)
        is_opaque = event.kind == "call" and event.name[:1] != "."
        is_opaque |= event.kind == "forward" and not layer
        operator = "" if is_opaque else operator_of(event, layer)
        policy = self.lists.policy(operator)
        if any(self.facts.kinds(region.context, "autocast") for region in event.regions):
            found = self.autocast(event)
            if found is None and self.autocasts.around(event) is None:
                return ""
            if found is not None and (policy == "lower_precision" or self._is_network(event, is_opaque)):
                return found[2]
            if found is not None and policy.startswith("fp32"):
                return "torch.float32"
        if operator in _TRUTHS or event.name in _TRUTHS:
            return "torch.bool"
        written = event.changed.get("@dtype")
        if event.kind == "forward" and written is not None:
            return written.name if isinstance(written, Symbol) else ""
        if is_opaque or layer.startswith("Embedding"):
            return "torch.float32" if layer else ""
        return self._widest(self._read(event, operator))

    def _is_network(self, event: Event, is_opaque: bool) -> bool:
        """Whether an event of unknown code computes with weights: it is a module's, or the first one that the
        data pass through."""
        if not is_opaque or event.kind == "forward":
            return is_opaque
        known = {made.kind for value in event.arguments.values() for made in self.facts.made_by(value)}
        return event.subject is not None and known.isdisjoint(("forward", "call"))

    def _read(self, event: Event, operator: str) -> Iterator[Value]:
        values = list(event.arguments.values() if event.kind == "forward" else event.inputs)
        if operator == "where":
            values = values[1:] if event.subject is None else [values[0], *values[2:]]
        is_mix = operator in _MIXES or self.lists.policy(operator) == "promote"
        if event.name in KEEPS or not is_mix:
            values = values[:1]
        for value in values:
            held = [item for item in self.facts.held(value) if item.kind not in ("list", "tuple")]
            yield from held or (value,)

    def _widest(self, values: Iterator[Value]) -> str | None:
        found = {dtype for dtype in map(self._of, values) if dtype is not None}
        if len(found) < 2:
            return found.pop() if found else None
        floats = found.intersection((*_FLOATS, *HALF_DTYPES))
        if "" in found or len(floats) < 2:
            return floats.pop() if floats and "" not in found else ""
        return "torch.float64" if "torch.float64" in floats else "torch.float32"
