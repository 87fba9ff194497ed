"""What variables hold: modules, their layers, tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal as Choices

from tclint.source.names.queries import Called, any_word, words
from tclint.source.names.resolve import Resolver
from tclint.source.syntax.tables import (
    Call,
    CallEvent,
    Expression,
    Function,
    Name,
    Other,
    Subscript,
    dotted,
    method_of,
    render,
)

_DEPTH = 5
"""Names and classes followed."""

Kind = Choices["module", "tensor"]

_TENSOR_MAKERS = words(
    "rand randn randint randperm zeros ones empty full arange linspace eye tensor as_tensor from_numpy stack "
    "cat concat rand_like randn_like zeros_like ones_like empty_like full_like sigmoid softmax relu matmul "
    "bmm where einsum flip permute normal bernoulli clamp"
)

_TENSOR_NAMES = words(
    "x image images img imgs input inputs sample samples batch target targets label labels tensor frames "
    "pixel_values input_tensor data inp"
)

_MODULE_NAMES = words(
    "model net network module backbone unet vae encoder decoder generator discriminator netg netd self "
    "resnet teacher student model_ema ema ddp_model policy"
)

_TENSOR_METHODS = words("contiguous detach clone permute view reshape unsqueeze pin_memory")

_SHARED_METHODS = words("cuda cpu to half float double bfloat16 requires_grad_ train eval")
"""Methods of tensors and modules alike, or of modules, that return what they are called on."""


class Values:
    """Answers about what the variables of one file hold."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.tables = resolver.tables
        self._kinds: dict[tuple[int, str], Kind | None] = {}

    def kind_of(self, function: Function, expression: Expression, depth: int = _DEPTH) -> Kind | None:
        """Whether an expression is an nn.Module or a tensor; None when that is not clear."""
        if depth <= 0:
            return None
        match expression:
            case Name(name):
                key = (function.index, name)
                if key not in self._kinds:
                    self._kinds[key] = None  # a name that is made of itself
                    self._kinds[key] = self._kind_of_name(function, name, depth)
                return self._kinds[key]
            case Call():
                return self._kind_of_call(function, expression, depth)
            case Subscript(value, _):
                kind = self.kind_of(function, value, depth - 1)
                return kind if kind == "tensor" else None
            case _:
                return None

    def _kind_of_call(self, function: Function, call: Call, depth: int) -> Kind | None:
        for name in self.resolver.called(function, call):
            last = name.rpartition(".")[2]
            if name.startswith(("torch.nn.functional.", "torchvision.transforms.functional.")):
                return "tensor"
            if name.startswith(("torch.nn.", "torchvision.models.")) and (
                last[:1].isupper() or "models" in name
            ):
                return "module" if not name.startswith(("torch.nn.Parameter", "torch.nn.utils")) else "tensor"
            if name in ("timm.create_model", "timm.models.create_model", "torch.hub.load", "torch.compile"):
                return "module"
            if name.startswith("torch.") and name.count(".") == 1 and last in _TENSOR_MAKERS:
                return "tensor"
            if name.startswith("transformers.") and last == "from_pretrained" and "Model" in name:
                return "module"
        if any(
            self.is_module_class(maker) for maker in self.resolver.local_functions(function, call.function)
        ):
            return "module"
        receiver, method = method_of(call)
        if receiver is not None and method in _TENSOR_METHODS:
            return "tensor"
        if receiver is not None and method in _SHARED_METHODS:
            return self.kind_of(function, receiver, depth - 1)
        return None

    def _kind_of_name(self, function: Function, name: str, depth: int) -> Kind | None:
        definitions, _ = self.resolver.definitions(function, name)
        kinds: set[Kind | None] = set()
        for scope, item in definitions:
            if item.operator:
                continue
            value = item.value
            if isinstance(value, Other) and value.kind == "iterate":
                kinds.add("tensor" if _over_data(value) else None)
            elif not item.unpacked:
                kinds.add(self.kind_of(scope, value, depth - 1))
        known = {kind for kind in kinds if kind is not None}
        if len(known) == 1:
            return known.pop()
        if known:
            return None
        owner = self.resolver.owner(function, name)
        for parameter in owner.parameters if owner is not None else ():
            if parameter.name == name and parameter.annotation is not None:
                annotation = render(parameter.annotation)
                if annotation.endswith("Module"):
                    return "module"
                return "tensor" if annotation.endswith("Tensor") else None
        last = name.rpartition(".")[2].lower().rstrip("0123456789_")
        if last in _MODULE_NAMES or last.endswith(("model", "net", "_encoder", "_decoder", "module")):
            return "module"
        if last in _TENSOR_NAMES or last.endswith(("_tensor", "_images", "_image", "_imgs", "_batch")):
            return "tensor"
        return None

    def is_module_class(self, function: Function) -> bool:
        """A class of this file that derives from torch.nn.Module, perhaps through another one."""
        return function.kind == "class" and self._derives(function, _DEPTH)

    def _derives(self, function: Function, depth: int) -> bool:
        if depth <= 0:
            return False
        outer = self.tables.functions[function.parent]
        for base in function.bases:
            name = dotted(base)
            if name == "nn.Module" or any(
                candidate.startswith("torch.nn.")
                for candidate in self.resolver.qualified(outer, name)
                if name
            ):
                return True
            if any(self._derives(maker, depth - 1) for maker in self.resolver.local_functions(outer, base)):
                return True
        return False

    def members(self, owner: Function) -> Iterator[Function]:
        """Methods of a class and the functions nested in them."""
        for function in self.tables.functions:
            if function.kind != "class" and self.tables.class_of(function) is owner:
                yield function

    def layers(self, owner: Function, depth: int = _DEPTH) -> Iterator[Called]:
        """Layers of torch.nn that a class makes, classes of this file that it makes followed."""
        if depth <= 0:
            return
        for member in self.members(owner):
            for position, event in enumerate(member.events):
                if not isinstance(event, CallEvent):
                    continue
                for name in self.resolver.called(member, event.call):
                    if name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper():
                        yield Called(name, event.call, member, event.block, position)
                for maker in self.resolver.local_functions(member, event.call.function):
                    if maker.kind == "class" and maker is not owner:
                        yield from self.layers(maker, depth - 1)

    def all_layers(self) -> list[Called]:
        """Every layer of torch.nn that the file makes."""
        found = []
        for function in self.tables.functions:
            for position, event in enumerate(function.events):
                if isinstance(event, CallEvent) and method_of(event.call)[1][:1].isupper():
                    for name in self.resolver.called(function, event.call):
                        if name.startswith("torch.nn."):
                            found.append(Called(name, event.call, function, event.block, position))
        return found


def _over_data(iterated: Other) -> bool:
    return any_word(render(iterated.parts[0]), ("loader", "dataset", "batches")) if iterated.parts else False
