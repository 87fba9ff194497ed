"""Reads what functions do with scalers, gradients and optimizers; calls within the file are followed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from tclint.source.facts.amp import Amp
from tclint.source.facts.scaling_view import Kind, Op, Place, View
from tclint.source.names.frameworks import names
from tclint.source.names.project import Project
from tclint.source.names.queries import bound, mutually_exclusive
from tclint.source.syntax.tables import (
    Argument,
    Assignment,
    Call,
    CallEvent,
    Collection,
    Expression,
    Function,
    Literal,
    Name,
    Operation,
    Return,
    dotted,
    method_of,
    parts_of,
    render,
)

_INLINE_DEPTH = 3

PROTOCOL = frozenset(("scale", "unscale_", "step", "update"))

_HARMLESS = frozenset(
    ("isinstance", "print", "len", "type", "id", "hasattr", "getattr", "callable", "bool", "str", "repr")
)

_KEEPING = re.compile(r"save|load|checkpoint|ckpt|resum|restor|log|info|append|state")
"""In names of functions that keep a scaler's state or report it."""

_ABOUT_SCALER = re.compile(
    r"^(?:use|using|enable|has|is|with|no|need)|scaler_?(?:state|path|enabled|arg|kwarg|conf|cfg|opt|type|name)"
)
"""Names that say something about a scaler: `use_scaler`, `scaler_state`."""

_INFINITE = ("float('inf')", "math.inf", "torch.inf", "np.inf", "numpy.inf")
_CUTS = frozenset(("clamp_", "clip_", "clamp_min_", "clamp_max_", "masked_fill_", "sign_"))

_OWN_AMOUNT = re.compile(r"randn|rand_like|normal|noise|weight_decay|\.data\b")
"""In what is added to gradients: noise, weight decay. Other gradients may carry the same scale."""

_CLIPPING = re.compile(r"clip_?grad|grad(?:ient)?s?_?clip")
"""In names of functions of other files that may clip gradients."""

_READS = frozenset(("norm", "abs", "max", "mean", "std", "pow", "square"))


class _Frame(NamedTuple):
    function: Function
    places: tuple[Place, ...]
    renamed: Mapping[str, str]
    scalers: frozenset[str]
    """Parameters that get a scaler."""


class _Written(NamedTuple):
    block: int
    scaler: str


class Scalers(Protocol):
    """What is asked about the scalers of the file."""

    amp: Amp
    project: Project[Any]

    def is_scaler(self, function: Function, expression: Expression) -> bool: ...

    def made_by(self, function: Function, call: Call) -> object | None: ...


class Reader:
    """Fills a view."""

    def __init__(self, scaling: Scalers, view: View) -> None:
        self.scaling = scaling
        self.amp = scaling.amp
        self.view = view
        self._written: dict[tuple[tuple[Place, ...], str], list[_Written]] = {}
        self._returned: dict[tuple[tuple[Place, ...], int], str] = {}
        self._entered: list[int] = []
        self._named_scale: dict[tuple[int, str], list[tuple[Function, int]]] = {}

    def run(self) -> None:
        self._read(_Frame(self.view.function, (), {}, frozenset()))

    def _read(self, frame: _Frame) -> str:
        """Read a function; what scaler its result was scaled with."""
        self._entered.append(frame.function.index)
        returned = ""
        for event in frame.function.events:
            if isinstance(event, CallEvent):
                self._call(frame, event)
            elif isinstance(event, Assignment):
                self._assign(frame, event)
            elif isinstance(event, Return):
                returned = returned or self._scaled(frame, event.value, event.block)
                if not frame.places and self._scalers_in(frame, (Argument(event.value),)):
                    call = Call(Name("return"), (), event.node_id)
                    self._add(frame, "escape", call, event.block, scaler=render(event.value))
        self._entered.pop()
        return returned

    def _outer(self, frame: _Frame, expression: Expression) -> str:
        """An expression of a followed function as the viewed function would write it."""
        text = render(expression)
        root, dot, rest = text.partition(".")
        return frame.renamed.get(root, root) + dot + rest

    def _is_scaler(self, frame: _Frame, expression: Expression) -> bool:
        return dotted(expression) in frame.scalers or self.scaling.is_scaler(frame.function, expression)

    def _add(
        self,
        frame: _Frame,
        kind: Kind,
        call: Call,
        block: int,
        *,
        scaler: str = "",
        optimizer: str = "",
        loss: Expression | None = None,
    ) -> None:
        places = (*frame.places, Place(frame.function.index, block, call.node_id))
        self.view.ops.append(Op(kind, scaler, optimizer, call, places, loss))

    def _call(self, frame: _Frame, event: CallEvent) -> None:
        call, block = event
        receiver, method = method_of(call)
        first = call.arguments[0].value if call.arguments else None
        if receiver is not None and method in PROTOCOL and self._is_scaler(frame, receiver):
            scaler = self._outer(frame, receiver)
            optimizer = self._outer(frame, first) if first is not None else ""
            if method == "unscale_":
                self._add(frame, "unscale", call, block, scaler=scaler, optimizer=optimizer)
            elif method == "step" and first is not None:
                self._add(frame, "scaler_step", call, block, scaler=scaler, optimizer=optimizer)
            elif method == "update":
                self._add(frame, "update", call, block, scaler=scaler)
            return
        qualified = self.amp.resolver.called(frame.function, call)
        if method in ("backward", "grad") and (method == "backward" or "torch.autograd.grad" in qualified):
            self._backward(frame, event, receiver, qualified)
        elif any(name in names().clips for name in qualified):
            given = [render(argument.value) for argument in call.arguments]
            if any(value in _INFINITE for value in given):
                self._add(frame, "read", call, block)
            elif not any("master_params" in value for value in given):
                self._add(frame, "clip", call, block)
        elif receiver is not None and render(receiver).endswith((".grad", ".grad.data")):
            if method in _CUTS or (method in ("add_", "sub_") and _own_amount(call.arguments)):
                self._add(frame, "cut", call, block)
            elif method in ("mul_", "div_"):
                self._add(frame, "rescale", call, block)
            elif method in _READS:
                self._add(frame, "read", call, block)
        elif method == "norm" and first is not None and ".grad" in render(first):
            self._add(frame, "read", call, block)
        elif (
            receiver is not None
            and (method == "second_step" or (method == "step" and _may_be_plain(call)))
            and self.amp.is_optimizer(frame.function, receiver)
        ):
            self._add(frame, "step", call, block, optimizer=self._outer(frame, receiver))
        else:
            self._follow(frame, event)

    def _backward(
        self, frame: _Frame, event: CallEvent, receiver: Expression | None, qualified: tuple[str, ...]
    ) -> None:
        call, block = event
        first = call.arguments[0].value if call.arguments else None
        is_function = any(name.startswith("torch.autograd.") for name in qualified)
        loss = first if is_function else receiver
        if loss is None:
            return
        scaler = self._scaled(frame, loss, block)
        if scaler:
            self._add(frame, "scaled_backward", call, block, scaler=scaler, loss=loss)
        elif method_of(call)[1] == "grad":
            return
        elif is_function or self.amp.is_tensor_backward(frame.function, call):
            by_hand = "scal" in render(loss).lower() or self._by_hand(frame, loss, block)
            self._add(frame, "other_backward" if by_hand else "backward", call, block, loss=loss)
        elif not self.amp.resolver.local_functions(frame.function, call.function):
            self._add(frame, "other_backward", call, block, loss=loss)
        else:
            self._follow(frame, event)

    def _by_hand(self, frame: _Frame, loss: Expression, block: int) -> bool:
        """The loss was multiplied by something called a scale, or comes from code that may scale it."""
        name = dotted(loss)
        if not name:
            return False
        key = frame.function.index, name
        if key not in self._named_scale:
            definitions, _ = self.amp.resolver.definitions(frame.function, name)
            self._named_scale[key] = [
                (scope, item.block) for scope, item in definitions if "scal" in render(item.value).lower()
            ]
        return any(
            scope is not frame.function or not mutually_exclusive(scope, written, block)
            for scope, written in self._named_scale[key]
        )

    def _scalers_in(self, frame: _Frame, arguments: tuple[Argument, ...]) -> list[Expression]:
        found: list[Expression] = []
        waiting = [argument.value for argument in arguments]
        while waiting:
            expression = waiting.pop()
            if isinstance(expression, Name):
                last = expression.dotted.rpartition(".")[2].lower()
                if expression.dotted in frame.scalers or (
                    "scaler" in last and not _ABOUT_SCALER.search(last)
                ):
                    found.append(expression)
            elif isinstance(expression, Collection):
                waiting.extend(expression.items)
        return found

    def _follow(self, frame: _Frame, event: CallEvent) -> None:
        call, block = event
        helpers = [
            helper
            for helper in self.amp.resolver.local_functions(frame.function, call.function)
            if helper.kind == "function"
        ]
        place = Place(frame.function.index, block, call.node_id)
        if (
            len(helpers) == 1
            and len(frame.places) < _INLINE_DEPTH
            and helpers[0].index not in self._entered
            and not any(argument.star for argument in call.arguments)
        ):
            inner = self._enter(frame, helpers[0], call, place, block)
            returned = self._read(inner)
            if returned:
                self._returned[frame.places, call.node_id] = returned
            return
        last = method_of(call)[1]
        if last in _HARMLESS or _KEEPING.search(last.lower()):
            return
        if self.scaling.made_by(frame.function, call) is not None:
            return
        scalers = self._scalers_in(frame, call.arguments)
        if not scalers and _CLIPPING.search(last.lower()) and self._clips_elsewhere(frame, call):
            self._add(frame, "clip", call, block)
        for scaler in scalers:
            self._add(frame, "escape", call, block, scaler=self._outer(frame, scaler))
        if "unscale" in last.lower():
            # A method of a base class or a helper of another file that has the scaler itself.
            self._add(frame, "escape", call, block)

    def _clips_elsewhere(self, frame: _Frame, call: Call) -> bool:
        """`clip_gradient(optimizer, limit)`: a function of another file of the project that clips gradients
        and has nothing to do with a scaler."""
        for qualified in self.amp.resolver.called(frame.function, call):
            if qualified.startswith("torch."):
                continue
            found = self.scaling.project.definition(qualified, (b"clamp", b"clip_grad"))
            if found is None:
                continue
            context, function = found
            methods = set()
            for event in function.calls:
                receiver, method = method_of(event.call)
                if receiver is not None and render(receiver).endswith((".grad", ".grad.data")):
                    methods.add(method)
                if "scal" in render(event.call.function).lower():
                    return False
                if any(name in names().clips for name in context.resolver.called(function, event.call)):
                    return True
            return bool(methods & _CUTS)
        return False

    def _enter(self, frame: _Frame, helper: Function, call: Call, place: Place, block: int) -> _Frame:
        renamed: dict[str, str] = {}
        scalers = set()
        places = (*frame.places, place)
        for target, value in bound(call, self.amp.resolver.parameters(helper)).items():
            renamed[target] = self._outer(frame, value)
            if isinstance(value, Name) and self._is_scaler(frame, value):
                scalers.add(target)
            scaler = self._scaled(frame, value, block)
            if scaler:
                self._written.setdefault((places, target), []).append(_Written(0, scaler))
        return _Frame(helper, places, renamed, frozenset(scalers))

    def _assign(self, frame: _Frame, event: Assignment) -> None:
        scaler = self._scaled(frame, event.value, event.block)
        for target in event.targets:
            if target.endswith((".grad", ".grad.data")):
                self._edit(frame, event, target)
            if event.operator and not scaler:
                continue
            self._written.setdefault((frame.places, target), []).append(_Written(event.block, scaler))

    def _edit(self, frame: _Frame, event: Assignment, target: str) -> None:
        """`p.grad = ...`, `p.grad *= ...`."""
        call = Call(Name(target), (), event.node_id)
        value = event.value
        if event.operator in ("+", "-"):
            if _own_amount((Argument(value),)):
                self._add(frame, "cut", call, event.block)
        elif event.operator in ("*", "/"):
            self._add(frame, "rescale", call, event.block)
        elif not event.operator:
            text = render(value)
            if any(cut in text for cut in ("clamp", "clip")):
                self._add(frame, "cut", call, event.block)
            elif isinstance(value, Operation) and value.operator in ("*", "/") and ".grad" in text:
                self._add(frame, "rescale", call, event.block)

    def _scaled(self, frame: _Frame, expression: Expression, block: int) -> str:
        """The scaler that a value was scaled with; ''."""
        match expression:
            case Call():
                receiver, method = method_of(expression)
                if method == "scale" and receiver is not None and self._is_scaler(frame, receiver):
                    return self._outer(frame, receiver)
                known = self._returned.get((frame.places, expression.node_id))
                if known:
                    return known
                parts: tuple[Expression, ...] = tuple(argument.value for argument in expression.arguments)
                # What another function makes of a scaled loss is not known to be scaled.
                if receiver is not None and not isinstance(receiver, Name):
                    return self._scaled(frame, receiver, block)
                if method in ("sum", "stack", "mean") and parts:
                    return self._first(frame, parts, block)
                return ""
            case Name(name):
                return self._of_name(frame, name, block)
            case Literal():
                return ""
            case _:
                return self._first(frame, parts_of(expression), block)

    def _first(self, frame: _Frame, parts: tuple[Expression, ...], block: int) -> str:
        for part in parts:
            found = self._scaled(frame, part, block)
            if found:
                return found
        return ""

    def _of_name(self, frame: _Frame, name: str, block: int) -> str:
        around = frame.function.enclosing(block)
        for written in reversed(self._written.get((frame.places, name), [])):
            if mutually_exclusive(frame.function, written.block, block):
                continue
            if written.scaler:
                return written.scaler
            if written.block in around:
                return ""
        return ""


def _may_be_plain(call: Call) -> bool:
    """An optimizer steps with nothing or a closure, a scheduler with an epoch or a metric."""
    return all("closure" in render(argument.value).lower() for argument in call.arguments)


def _own_amount(arguments: tuple[Argument, ...]) -> bool:
    """What is added to a gradient has a size that the loss scale does not change."""
    text = " ".join(render(argument.value) for argument in arguments)
    return _OWN_AMOUNT.search(text.replace(".grad.data", ".grad")) is not None
