"""What one file does as a program: its switches, what it calls, where it trains, what variables hold."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal as Choices
from typing import NamedTuple

from tclint.source.amp import Amp
from tclint.source.resolve import Possible, Resolver
from tclint.source.tables import (
    Argument,
    Assignment,
    Attribute,
    Block,
    Call,
    CallEvent,
    Closure,
    Discard,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Other,
    Subscript,
    Tables,
    dotted,
    method_of,
    parts_of,
    render,
)

_SWITCH_ATTRIBUTES = frozenset(
    (
        "allow_tf32",
        "fp32_precision",
        "benchmark",
        "deterministic",
        "enabled",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
    )
)
SWITCH_CALLS = (
    "torch.set_float32_matmul_precision",
    "torch.use_deterministic_algorithms",
    "torch.set_deterministic",
    "torch.autograd.set_detect_anomaly",
    "torch.autograd.anomaly_mode.set_detect_anomaly",
    "torch.set_default_dtype",
)
_CUDNN = ("torch.backends.cudnn",)

_DEPTH = 5


def words(text: str) -> frozenset[str]:
    """A set of words, written in one string."""
    return frozenset(text.split())


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


class Switch(NamedTuple):
    """A run-time setting is assigned, or set by a call."""

    name: str
    """'torch.backends.cudnn.benchmark', 'torch.set_float32_matmul_precision', ..."""
    value: Possible
    expression: Expression | None
    function: Function
    block: int
    site: int
    position: int
    """Index of its event in the function."""


class Called(NamedTuple):
    """A call of something with a known qualified name."""

    qualified: str
    call: Call
    function: Function
    block: int
    position: int


class Training(NamedTuple):
    """A function that goes backward and steps an optimizer."""

    function: Function
    block: int
    """The innermost loop around the backward call; 0 where the function has none around it."""
    site: int
    """Of that loop, or of the backward call."""
    backward: CallEvent
    step: CallEvent


@dataclass
class Program:
    """Answers about one file; everything is found when first asked for."""

    amp: Amp
    _kinds: dict[tuple[int, str], Kind | None] = field(default_factory=dict, repr=False)

    @property
    def tables(self) -> Tables:
        return self.amp.tables

    @property
    def resolver(self) -> Resolver:
        return self.amp.resolver

    # -- calls

    @cached_property
    def _by_last(self) -> dict[str, list[tuple[Function, CallEvent, int]]]:
        found: dict[str, list[tuple[Function, CallEvent, int]]] = {}
        for function in self.tables.functions:
            for position, event in enumerate(function.events):
                if isinstance(event, CallEvent):
                    found.setdefault(method_of(event.call)[1], []).append((function, event, position))
        return found

    def methods(self, *names: str) -> Iterator[tuple[Function, CallEvent, int]]:
        """Calls of methods or functions by the last part of their names, in the order of the file."""
        found = [item for name in dict.fromkeys(names) for item in self._by_last.get(name, ())]
        yield from sorted(found, key=lambda item: item[1].call.site)

    def calls(self, *qualified: str) -> list[Called]:
        """Calls of things with these qualified names, in the order of the file; aliases are followed."""
        wanted = frozenset(qualified)
        lasts = {name.rpartition(".")[2] for name in wanted}
        for scope in self.tables.functions:
            for item in scope.imports:
                if item.qualified.rpartition(".")[2] in lasts:
                    lasts.add(item.name.rpartition(".")[2])
        found: list[Called] = []
        for function, event, position in self.methods(*sorted(lasts)):
            for name in self.resolver.called(function, event.call):
                if name in wanted:
                    found.append(Called(name, event.call, function, event.block, position))
                    break
        return found

    @cached_property
    def _discarded(self) -> frozenset[int]:
        return frozenset(
            event.site
            for function in self.tables.functions
            for event in function.events
            if isinstance(event, Discard)
        )

    def is_discarded(self, call: Call) -> bool:
        """The call is a statement by itself: its result goes nowhere."""
        return call.site in self._discarded

    # -- switches

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Assignments to `torch.backends...` and calls of setters, in the order of the file."""
        found: list[Switch] = []
        if self.tables.identifiers & _SWITCH_ATTRIBUTES:
            for function in self.tables.functions:
                for position, event in enumerate(function.events):
                    if isinstance(event, Assignment) and not event.unpacked:
                        found.extend(self._assigned_switches(function, event, position))
        for called in self.calls(*SWITCH_CALLS):
            first = called.call.arguments[0].value if called.call.arguments else None
            value = (
                self.resolver.evaluate(called.function, first) if first is not None else Possible((), False)
            )
            found.append(
                Switch(
                    called.qualified,
                    value,
                    first,
                    called.function,
                    called.block,
                    called.call.site,
                    called.position,
                )
            )
        return tuple(sorted(found, key=lambda switch: switch.site))

    def _assigned_switches(self, function: Function, event: Assignment, position: int) -> Iterator[Switch]:
        for target in event.targets:
            last = target.rpartition(".")[2]
            if last not in _SWITCH_ATTRIBUTES or "." not in target or event.operator:
                continue
            for name in self.resolver.qualified(function, target):
                if name.startswith("torch.backends."):
                    value = self.resolver.evaluate(function, event.value)
                    yield Switch(name, value, event.value, function, event.block, event.site, position)

    def switches_of(self, *names: str) -> list[Switch]:
        return [switch for switch in self.switches if switch.name in names]

    @cached_property
    def callers(self) -> dict[int, list[tuple[Function, CallEvent]]]:
        """Function index -> calls of it in this file."""
        found: dict[int, list[tuple[Function, CallEvent]]] = {}
        for function in self.tables.functions:
            for event in function.events:
                if isinstance(event, CallEvent):
                    for local in self.resolver.local_functions(function, event.call.function):
                        found.setdefault(local.index, []).append((function, event))
        return found

    def unconditional(self, function: Function, block: int) -> bool:
        """Nothing but loops, with blocks, and tests for a GPU or for being the program stand around it."""
        for index in function.enclosing(block):
            around = function.blocks[index]
            if around.kind in ("if", "else", "case", "except", "finally", "loop_else", "try_else"):
                if around.kind == "if" and around.condition is not None and _always_here(around.condition):
                    continue
                return False
        return True

    def apart(self, function: Function, first: int, second: int) -> bool:
        """Like Amp.apart; the branches of a try statement count as apart as well."""
        if self.amp.apart(function, first, second):
            return True
        statements = {
            function.blocks[index].statement: function.blocks[index].kind
            for index in function.enclosing(first)
        }
        for index in function.enclosing(second):
            block = function.blocks[index]
            if {statements.get(block.statement), block.kind} in ({"try", "except"}, {"except"}):
                return True
        return False

    def in_with(self, function: Function, block: int, *words: str) -> bool:
        """Inside a with block whose expression holds one of the words: `pytest.raises(...)`."""
        for index in function.enclosing(block):
            for item in function.blocks[index].items:
                text = render(item.value)
                if any(word in text for word in words):
                    return True
        return False

    def outer_functions(self, function: Function) -> Iterator[Function]:
        """The function and the scopes around it."""
        index = function.index
        while index >= 0:
            yield self.tables.functions[index]
            index = self.tables.functions[index].parent

    # -- training

    @cached_property
    def on_cuda(self) -> bool:
        """The file speaks of CUDA at all."""
        if "cuda" in self.tables.identifiers:
            return True
        return any(
            isinstance(part, Literal) and isinstance(part.value, str) and part.value.startswith("cuda")
            for function in self.tables.functions
            for event in function.events
            if isinstance(event, CallEvent)
            for part in (argument.value for argument in event.call.arguments)
        )

    @cached_property
    def trainings(self) -> tuple[Training, ...]:
        """Functions that call Tensor.backward (scaled or not) and step an optimizer, one entry each."""
        found = []
        for function in self.tables.functions:
            backward = step = None
            for event in function.events:
                if not isinstance(event, CallEvent):
                    continue
                receiver, method = method_of(event.call)
                if method == "backward" and backward is None and receiver is not None:
                    scaled = isinstance(receiver, Call) and method_of(receiver)[1] == "scale"
                    if scaled or self.amp.is_tensor_backward(function, event.call):
                        backward = event
                elif method == "step" and step is None and receiver is not None:
                    steps = self.amp.is_optimizer(function, receiver) or "scaler" in render(receiver).lower()
                    step = event if steps else None
            if backward is not None and step is not None:
                loop = self.loop_around(function, backward.block)
                site = function.blocks[loop].site if loop else backward.call.site
                found.append(Training(function, loop, site, backward, step))
        return tuple(found)

    def loop_around(self, function: Function, block: int) -> int:
        """The innermost loop block around a block; 0 where there is none."""
        for index in function.enclosing(block):
            if function.blocks[index].kind == "loop":
                return index
        return 0

    def loops_of(self, function: Function) -> Iterator[tuple[int, Block, Assignment]]:
        """`for` loops of a function: their block and what they bind."""
        seen: set[int] = set()
        for event in function.events:
            if not isinstance(event, Assignment) or not _iterates(event.value) or event.block in seen:
                continue
            if function.blocks[event.block].kind == "loop":
                seen.add(event.block)
                yield event.block, function.blocks[event.block], event

    def loop_names(self, function: Function, loop: int) -> set[str]:
        """Names that a loop's header binds, and names unpacked from these in its body."""
        found: set[str] = set()
        for event in function.events:
            if not isinstance(event, Assignment) or loop not in function.enclosing(event.block):
                continue
            if (
                (isinstance(event.value, Other) and event.value.kind == "iterate" and event.block == loop)
                or (event.unpacked and dotted(event.value) in found)
                or (isinstance(event.value, Subscript) and root_name(event.value) in found)
            ):
                found.update(event.targets)
        return found

    # -- what variables hold

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

    def classes_made(self, function: Function, expression: Expression) -> tuple[Function, ...]:
        """Classes of this file that an expression's value is made by."""
        match expression:
            case Call():
                makers = self.resolver.local_functions(function, expression.function)
                classes = tuple(maker for maker in makers if maker.kind == "class")
                if classes:
                    return classes
                receiver, method = method_of(expression)
                if receiver is not None and method in ("cuda", "to", "train", "eval", "half", "float"):
                    return self.classes_made(function, receiver)
                return ()
            case Name(name):
                found: list[Function] = []
                for scope, item in self.resolver.definitions(function, name)[0]:
                    if not item.operator and not item.unpacked and isinstance(item.value, Call):
                        found.extend(self.classes_made(scope, _unwrapped(item.value, name)))
                return tuple(dict.fromkeys(found))
            case _:
                return ()

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

    @cached_property
    def lower_identifiers(self) -> frozenset[str]:
        return frozenset(identifier.lower() for identifier in self.tables.identifiers)

    def speaks_of(self, *parts: str) -> bool:
        """An identifier of the file holds one of these strings, in any case."""
        return any(part in identifier for identifier in self.lower_identifiers for part in parts)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that identifiers are made of, in lower case: 'use', 'amp' of `use_amp`."""
        return frozenset(
            word for identifier in self.lower_identifiers for word in re.split(r"[_.\-]", identifier) if word
        )


def keyword(call: Call, name: str, position: int = -1) -> Expression | None:
    """A keyword argument, or the positional one in its place."""
    for argument in call.arguments:
        if argument.keyword == name:
            return argument.value
    if position >= 0:
        positional = [argument for argument in call.arguments if not argument.keyword]
        if len(positional) > position and not any(argument.star for argument in positional[: position + 1]):
            return positional[position].value
    return None


def has_star(call: Call) -> bool:
    """`*args` or `**kwargs` may bring any argument."""
    return any(argument.star for argument in call.arguments)


def positional(call: Call) -> tuple[Argument, ...]:
    return tuple(argument for argument in call.arguments if not argument.keyword and not argument.star)


def root_name(expression: Expression) -> str:
    """`batch` of `batch["image"][0]` or `batch.image`; '' without a name at the root."""
    while isinstance(expression, Subscript | Attribute):
        expression = expression.value
    return expression.dotted.split(".", 1)[0] if isinstance(expression, Name) else ""


def contains(expression: Expression, test: Callable[[Expression], bool]) -> bool:
    """Whether some part of an expression passes a test."""
    return test(expression) or any(contains(part, test) for part in parts_of(expression))


def names_in(expression: Expression) -> set[str]:
    """Dotted names that an expression reads."""
    found: set[str] = set()
    pending: list[Expression] = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            found.add(part.dotted)
        elif not isinstance(part, Closure):
            pending.extend(parts_of(part))
    return found


def is_test_path(path: str) -> bool:
    """Whether a file is a test by its name or the folder it lies in."""
    folder, name = os.path.split(path.lower())
    return (
        name.startswith(("test_", "tests", "conftest"))
        or name.endswith("_test.py")
        or os.path.basename(folder) in ("test", "tests", "testing", "unit_tests", "unittests")
    )


def any_word(text: str, parts: Iterable[str]) -> bool:
    lowered = text.lower()
    return any(part in lowered for part in parts)


def _always_here(condition: Expression) -> bool:
    """`if __name__ == "__main__"`, `if torch.cuda.is_available()`, `if device.type == "cuda"`."""
    text = render(condition)
    alone = not isinstance(condition, Operation) or condition.operator == "=="
    return alone and ("__name__" in text or "cuda.is_available" in text or "'cuda'" in text)


def _iterates(value: Expression) -> bool:
    return isinstance(value, Other) and value.kind == "iterate"


def _over_data(iterated: Other) -> bool:
    return any_word(render(iterated.parts[0]), ("loader", "dataset", "batches")) if iterated.parts else False


def _unwrapped(call: Call, name: str) -> Expression:
    """`model = DDP(model)` says nothing new of `model`."""
    return Literal(None) if any(dotted(argument.value) == name for argument in call.arguments) else call
