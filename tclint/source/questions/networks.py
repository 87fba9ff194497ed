"""Classifies modules: networks of 2-D convolutions, transformers, models of libraries."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import NamedTuple

from tclint.source.questions.flow import Flow
from tclint.source.questions.steps import Step
from tclint.source.run.values import (
    FALSE,
    TRUE,
    Constant,
    Event,
    Thing,
    Value,
    constant_of,
    modules_in,
    options_of,
)

_ENOUGH = 3
"""A model with at least this many Conv2d layers in its classes counts as convolutional."""
_CONVOLUTION = re.compile(r"(?:Lazy)?Conv(?:Transpose)?([123])d")
_ATTENTION = re.compile(
    r"torch\.nn\.(?:MultiheadAttention|Transformer\w*|functional\.scaled_dot_product_attention)"
)
_VIEWS = frozenset({".view", ".view_as", ".as_strided", ".data_ptr"})
"""Methods that can fail or go wrong in another memory format."""


class Network(NamedTuple):
    """A convolutional model."""

    name: str
    """The name that a reader knows: 'torchvision.models.resnet50', 'UNet'."""
    convolutions: int
    """The number of Conv2d layers in its classes; 0 for a library's model."""
    is_default: bool
    """Whether an option chooses the model and this one is its default."""
    views: bool
    """Whether its forward calls `.view(...)` or the like."""
    takes_images: bool
    """Whether it is a library's model that is called with one batch [N, C, H, W]."""


class Networks:
    """Answers about one program."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.facts = flow.facts
        self.names = {key: re.compile(text) for key, text in self.facts.library.networks.items()}

    def library_name(self, module: Thing) -> tuple[str, bool]:
        """The name of a library's model, such as 'torchvision.models.resnet50' or 'timm resnet50', and
        whether the module is sure to be that model; '' for other modules."""
        made = module.made
        if module.cls is not None or made is None:
            return "", False
        is_sure = "@guessed" not in module.fields
        for key, prefix in (("model_name", "timm "), ("model", "torchvision.models."), ("encoder_name", "")):
            given = made.arguments.get(key)
            if given is not None:
                texts = [option.value for option, _ in options_of(given) if isinstance(option, Constant)]
                is_sure = isinstance(given, Constant)
                if len(texts) == 1 and texts[0] and isinstance(texts[0], str):
                    return f"{prefix or module.name + ' '}{texts[0]}", is_sure
                break  # one of several: what holds them tells
        is_known = module.name.startswith(
            ("torchvision.models.", "segmentation_models_pytorch.", "efficientnet_")
        )
        return (module.name if is_known else "", is_sure)

    def convolves(self, module: Thing) -> bool:
        """Whether a module is known to be a network of 2-D convolutions, without 3-D ones or attention."""
        name, _ = self.library_name(module)
        if name:
            return self._is_library_network(name)
        counts = self._counts(module)
        return counts["2"] > 0 and counts["2"] > counts["1"] and not counts["3"] and not counts["attention"]

    def convolutions(self, module: Thing) -> str:
        """The library's network that a module is, or its first layer that convolves images or volumes; '' if
        none is known, or if the module contains attention. A kernel of one pixel makes a matrix product."""
        name, _ = self.library_name(module)
        if name:
            return name if self._is_library_network(name) else ""
        if module.cls is None and self.names["denoisers"].search(module.name):
            return module.name.removesuffix(".from_pretrained").rpartition(".")[2]
        if self._counts(module)["attention"]:
            return ""
        for part in modules_in(module):
            found = _CONVOLUTION.fullmatch(self.flow.kind(part))
            if found is not None and found[1] != "1" and not self._is_point(part):
                return found[0]
            inner = self.library_name(part)[0] if part is not module else ""
            if inner and self._is_library_network(inner):
                return inner
        return ""

    def convolves_in(self, step: Step) -> bool:
        """Whether a training step runs a convolution, or a network that was converted to channels_last."""
        return any(
            _CONVOLUTION.fullmatch(self.flow.kind(module)) is not None
            or bool(self.convolutions(module))
            or self.flow.symbol(module.fields.get("@layout")).startswith("torch.channels_last")
            for event in step.events
            if event.kind == "forward"
            for module in self.facts.kinds(event.subject, "module")
        )

    def convolutional(self, module: Thing, forward: Event) -> Network | None:
        """A description of the module that a forward runs, if it is a network of 2-D convolutions."""
        if any(thing.operation is None for thing in self.facts.things(module.fields.get("@guessed"))):
            # The module may also be something unknown that is not chosen by an option with a default.
            return None
        name, is_sure = self.library_name(module)
        if name:
            if not self._is_library_network(name):
                return None
            return Network(name, 0, not is_sure, False, not self.names["detectors"].search(name))
        counts = self._counts(module)
        inside = self.flow.record.inside(forward)
        if any(_ATTENTION.match(self.flow.runs(event)) for event in inside) or counts["attention"]:
            return None
        # A network with a few 1-D convolutions across channels (ECA) is still one for images.
        if counts["3"] or 2 * counts["1"] >= max(counts["2"], 1):
            return None
        parts = [part for part in modules_in(module) if part is not module]
        libraries = [self.library_name(part) for part in parts if self.library_name(part)[0]]
        if any(not self._is_library_network(text) for text, _ in libraries):
            return None
        if counts["2"] < _ENOUGH and not libraries:
            return None
        shown = module.name if module.cls is not None else f"nn.{self.flow.kind(module)}"
        views = any(event.name in _VIEWS for event in inside)
        return Network(
            shown,
            counts["2"],
            "@guessed" in module.fields or not all(sure for _, sure in libraries),
            views,
            False,
        )

    def norm_of(self, module: Thing) -> str:
        """The class of a batch norm, or the name of a library's model that contains batch norms; else ''."""
        kind = self.flow.kind(module)
        if "BatchNorm" in kind:
            return kind
        name, is_sure = self.library_name(module)
        last = name.rpartition(" ")[2].rpartition(".")[2]
        made = module.made.arguments if module.made is not None else {}
        fits = is_sure and "norm_layer" not in made and self.names["batch_norms"].match(last)
        return last if fits else ""

    def is_trained(self, module: Thing, forward: Event) -> bool:
        """Whether an optimizer may train a module that a forward runs."""
        if forward.changed.get("@requires_grad") == FALSE:
            return False
        if forward.changed.get("@training") == FALSE and not any(
            # After `model.eval()` a program may put the part that it trains back into training mode.
            inner.changed.get("@training") == TRUE
            for inner in self.facts.record.inside(forward)
        ):
            return False
        return self._trained is None or not self._trained.isdisjoint(modules_in(module))

    @cached_property
    def _trained(self) -> frozenset[Thing] | None:
        """The modules that the program's optimizers train; None if it may be any."""
        optimizers: set[Value | None] = set()
        for event in self.facts.record.of("step", "scaler_step"):
            optimizers.add(event.arguments.get("optimizer") if event.kind == "scaler_step" else event.subject)
        trained: set[Thing] = set()
        for optimizer in optimizers:
            parameters = self.facts.parameters_of(optimizer)
            if not parameters or not self.facts.kinds(optimizer, "optimizer"):
                return None
            trained.update(parameters)
        return frozenset(part for whole in trained for part in (whole, *modules_in(whole))) or None

    def _is_library_network(self, name: str) -> bool:
        text = name.lower()
        last = text.rpartition("/")[2].rpartition(".")[2]
        if self.names["others"].search(text):
            return False
        return bool(self.names["images"].search(last)) or name.startswith("segmentation_models_pytorch.")

    def _counts(self, module: Thing) -> Counter[str]:
        """The numbers of a module's convolutions by rank, and of its attention layers; layers that a loop
        makes count once."""
        places: dict[object, str] = {}
        for part in modules_in(module):
            kind = self.flow.kind(part)
            found = _CONVOLUTION.fullmatch(kind)
            at = part.made.places if part.made is not None else part
            if found is not None:
                places[at] = "1" if found[1] == "2" and self._is_line(part) else found[1]
            elif _ATTENTION.match(f"torch.nn.{kind}"):
                places[at] = "attention"
        return Counter(places.values())

    def _is_point(self, layer: Thing) -> bool:
        kernel = self.flow.argument(layer, "kernel_size")
        sizes = (
            [kernel.fields.get(("item", at)) for at in range(2)] if isinstance(kernel, Thing) else [kernel]
        )
        return all(size == Constant(1) for size in sizes)

    def _is_line(self, layer: Thing) -> bool:
        """Whether a kernel has one row or one column, as for sound that is folded into two axes."""
        kernel = self.flow.argument(layer, "kernel_size")
        if not isinstance(kernel, Thing):
            return False
        sizes = [constant_of(kernel.fields.get(("item", position))) for position in range(2)]
        return sizes.count(1) == 1
