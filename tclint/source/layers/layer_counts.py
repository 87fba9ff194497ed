"""Which layers a model's classes make, with the classes and functions of the project that they use."""

from __future__ import annotations

import re
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.layers.library_models import NOT, Built, library_model
from tclint.source.names.queries import keyword
from tclint.source.syntax.tables import (
    Call,
    Collection,
    Expression,
    Function,
    Literal,
    dotted,
    method_of,
    parts_of,
)

CLASS_DEPTH = 5
ENOUGH = 3
"""Conv2d layers written in a model's classes from which on it counts as convolutional."""

_LAYOUT_MATTERS = frozenset({"view", "as_strided", "data_ptr", "view_as"})
_ATTENTION = re.compile(
    r"multihead|former|scaled_dot_product|\bvit|swin|mamba"
    r"|(?<!channel)(?<!spatial)(?<!coord)(?<!pixel)(?<!_)(?:attention|attn)(?:block|layer)?$",
    re.IGNORECASE,
)
"""In names of layers and functions. Attention made of 1x1 convolutions (CBAM and its like) is not meant."""


class Layers(NamedTuple):
    """What the classes of a model make."""

    conv2d: int = 0
    conv1d: int = 0
    conv3d: int = 0
    attention: bool = False
    views: bool = False
    """They call `.view(...)`, which may not do in another memory format."""

    def __add__(self, more: Layers) -> Layers:  # type: ignore[override]
        return Layers(
            self.conv2d + more.conv2d,
            self.conv1d + more.conv1d,
            self.conv3d + more.conv3d,
            self.attention or more.attention,
            self.views or more.views,
        )

    def verdict(self, name: str, context: SourceContext, node_id: int) -> Built | str | None:
        """What a model with these layers is."""
        # A few 1-D convolutions across channels (ECA) leave a network one for images.
        if self.attention or self.conv3d or 2 * self.conv1d >= max(self.conv2d, 1):
            return NOT
        if self.conv2d < ENOUGH:
            return None
        return Built(name, self.conv2d, context, node_id, views=self.views)


class LayerCounts:
    """Counts, each class once."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, int], Layers] = {}

    def of_class(self, context: SourceContext, owner: Function, depth: int = CLASS_DEPTH) -> Layers:
        """Layers that a class makes, with the classes and functions of the project that it uses."""
        key = (context.path, owner.index)
        if key not in self._classes:
            self._classes[key] = Layers()  # a class that makes itself
            total = Layers(attention=bool(_ATTENTION.search(owner.name)))
            outer = context.tables.functions[owner.parent] if owner.parent >= 0 else owner
            for base in owner.bases:
                total = total + self.of_callee(context, outer, Call(base, (), 0), depth)
            for member in context.values.members(owner):
                total = total + self._of_function(context, member, depth)
            self._classes[key] = total
        return self._classes[key]

    def _of_function(self, context: SourceContext, function: Function, depth: int) -> Layers:
        total = Layers()
        for event in function.calls:
            total = total + self.of_callee(context, function, event.call, depth)
            if method_of(event.call)[1] in _LAYOUT_MATTERS:
                total = total._replace(views=True)
        return total

    def of_expression(
        self, context: SourceContext, function: Function, value: Expression, depth: int
    ) -> Layers:
        total = Layers()
        if isinstance(value, Call):
            total = self.of_callee(context, function, value, depth)
        for part in parts_of(value):
            total = total + self.of_expression(context, function, part, depth)
        return total

    def of_callee(self, context: SourceContext, function: Function, call: Call, depth: int) -> Layers:
        if depth <= 0:
            return Layers()
        name = dotted(call.function)
        attention = bool(_ATTENTION.search(name))
        known = library_model(context, function, call)
        if known is not None:
            return Layers(conv2d=ENOUGH) if isinstance(known, Built) else Layers(attention=True)
        for qualified in context.resolver.called(function, call):
            last = qualified.rpartition(".")[2]
            if qualified.startswith("torch.nn."):
                flat = last in ("Conv2d", "ConvTranspose2d")
                line = last in ("Conv1d", "ConvTranspose1d") or (flat and _is_line(call))
                return Layers(
                    conv2d=int(flat and not line),
                    conv1d=int(line),
                    conv3d=int(last in ("Conv3d", "ConvTranspose3d")),
                    attention=attention,
                )
            if qualified.startswith(("torch.", "torchvision.")):
                return Layers(attention=attention)
        total = Layers(attention=attention)
        if name.startswith(("self.", "cls.")):
            return total  # a method of the class, which is counted as one of its members
        for where, made in context.definitions_of(function, call.function):
            total = total + self._of_definition(where, made, depth - 1)
        return total

    def _of_definition(self, context: SourceContext, function: Function, depth: int) -> Layers:
        if depth <= 0:
            return Layers()
        if function.kind == "class":
            return self.of_class(context, function, depth)
        if function.kind == "function":
            return self._of_function(context, function, depth)
        return Layers()


def _is_line(call: Call) -> bool:
    """A kernel of one row or one column, as for sound that is folded into two axes."""
    kernel = keyword(call, "kernel_size", 2)
    if not isinstance(kernel, Collection) or len(kernel.items) != 2:
        return False
    return sum(item == Literal(1) for item in kernel.items) == 1
