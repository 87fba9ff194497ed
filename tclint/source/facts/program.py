"""What one file does as a program: its switches, what it calls, where it trains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tclint.source.facts.amp import Amp
from tclint.source.facts.switches import SWITCH_CALLS, Switch, find_switches
from tclint.source.names.frameworks import names
from tclint.source.names.queries import Called, mutually_exclusive, root_name
from tclint.source.names.resolve import Resolver
from tclint.source.syntax.tables import (
    Assignment,
    Block,
    Call,
    CallEvent,
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
    render,
)

_ACCELERATORS = frozenset(("current_accelerator", "get_accelerator", "get_device"))
"""Functions of torch.accelerator, DeepSpeed and many projects that return the GPU of this machine."""
_WITHOUT_GPU = ("PyTorch/XLA",)


class Training(NamedTuple):
    """A function that goes backward and steps an optimizer."""

    function: Function
    block: int
    """The innermost loop around the backward call; 0 where the function has none around it."""
    node_id: int
    """Of that loop, or of the backward call."""
    backward: CallEvent
    """`loss.backward()`, `accelerator.backward(loss)`, `loss_scaler(loss, optimizer)`."""
    step: CallEvent


@dataclass
class Program:
    """Answers about one file; everything is found when first asked for."""

    amp: Amp

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
        yield from sorted(found, key=lambda item: item[1].call.node_id)

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
            event.node_id
            for function in self.tables.functions
            for event in function.events
            if isinstance(event, Discard)
        )

    def is_discarded(self, call: Call) -> bool:
        """The call is a statement by itself: its result goes nowhere."""
        return call.node_id in self._discarded

    # -- switches

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Assignments to `torch.backends...` and calls of setters, in the order of the file."""
        return find_switches(self.resolver, self.calls(*SWITCH_CALLS))

    def switches_of(self, *names: str) -> list[Switch]:
        return [switch for switch in self.switches if switch.name in names]

    def unconditional(self, function: Function, block: int) -> bool:
        """Nothing but loops, with blocks, and tests for a GPU or for being the program stand around it."""
        for index in function.enclosing(block):
            around = function.blocks[index]
            if around.kind in ("if", "else", "case", "except", "finally", "loop_else", "try_else"):
                if around.kind == "if" and around.condition is not None and _always_here(around.condition):
                    continue
                return False
        return True

    def mutually_exclusive(self, function: Function, first: int, second: int) -> bool:
        """Like Amp.mutually_exclusive; the branches of a try statement count as apart as well."""
        if mutually_exclusive(function, first, second):
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
        """The file speaks of CUDA, or leaves the device to a framework or to torch.accelerator."""
        if "cuda" in self.tables.identifiers or self.tables.identifiers & _ACCELERATORS:
            return True
        if self.amp.framework is not None and self.amp.framework not in _WITHOUT_GPU:
            return True
        return any(
            isinstance(part, Literal) and isinstance(part.value, str) and part.value.startswith("cuda")
            for function, event in self.tables.calls
            for part in (argument.value for argument in event.call.arguments)
        )

    @cached_property
    def trainings(self) -> tuple[Training, ...]:
        """Functions that go backward (by Tensor.backward, a scaler or a framework) and step an optimizer, one
        entry each."""
        found = []
        for function in self.tables.functions:
            backward = step = None
            for event in function.calls:
                if backward is None and self.goes_backward(function, event.call):
                    backward = event
                if step is None and self._steps(function, event.call, backward):
                    step = event
            if backward is not None and step is not None:
                loop = self.loop_around(function, backward.block)
                node_id = function.blocks[loop].node_id if loop else backward.call.node_id
                found.append(Training(function, loop, node_id, backward, step))
        return tuple(found)

    def goes_backward(self, function: Function, call: Call) -> bool:
        """`loss.backward()`, `scaler.scale(loss).backward()`, `accelerator.backward(loss)`,
        `self.manual_backward(loss)`, `loss_scaler(loss, optimizer, ...)`."""
        receiver, method = method_of(call)
        if method == "backward" and receiver is not None:
            scaled = isinstance(receiver, Call) and method_of(receiver)[1] == "scale"
            if scaled or self.amp.is_tensor_backward(function, call):
                return True
            last = render(receiver).rpartition(".")[2].lower()
            return last in names().not_tensors - _OWN and _gets_loss(call)
        if method == "manual_backward":
            return receiver is not None and _gets_loss(call)
        return steps_by_itself(call)

    def _steps(self, function: Function, call: Call, backward: CallEvent | None) -> bool:
        receiver, method = method_of(call)
        if receiver is None or (method != "step" and not method.startswith("step_")):
            return steps_by_itself(call)
        if self.amp.is_optimizer(function, receiver) or "scaler" in render(receiver).lower():
            return True
        # `engine.backward(loss)`, `engine.step()`
        return backward is not None and method_of(backward.call)[0] == receiver

    def loop_around(self, function: Function, block: int) -> int:
        """The innermost loop block around a block; 0 where there is none."""
        for index in function.enclosing(block):
            if function.blocks[index].kind == "loop":
                return index
        return 0

    def loops_of(self, function: Function) -> Iterator[tuple[int, Block, Assignment]]:
        """`for` loops of a function: their block and what they bind."""
        for block, header in self._headers(function).items():
            yield block, function.blocks[block], header

    def header_of(self, function: Function, block: int) -> Assignment | None:
        """What a `for` loop binds; None for other blocks."""
        return self._headers(function).get(block)

    def _headers(self, function: Function) -> dict[int, Assignment]:
        known: dict[int, Assignment] | None = function.known.get("headers")
        if known is None:
            known = function.known["headers"] = {}
            for event in function.assignments:
                if _iterates(event.value) and function.blocks[event.block].kind == "loop":
                    known.setdefault(event.block, event)
        return known

    def loop_names(self, function: Function, loop: int) -> set[str]:
        """Names that a loop's header binds, and names unpacked from these in its body."""
        found: set[str] = set()
        for event in function.assignments:
            if loop not in function.enclosing(event.block):
                continue
            if (
                (isinstance(event.value, Other) and event.value.kind == "iterate" and event.block == loop)
                or (event.unpacked and dotted(event.value) in found)
                or (isinstance(event.value, Subscript) and root_name(event.value) in found)
            ):
                found.update(event.targets)
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


_OWN = frozenset(("cls", "super", "ctx", "optim", "opt", "scaler"))


def _gets_loss(call: Call) -> bool:
    """The first argument speaks of a loss: `accelerator.backward(loss / steps)`."""
    return bool(call.arguments) and "loss" in render(call.arguments[0].value).lower()


def loss_of(call: Call) -> Expression | None:
    """What goes backward by a call that `Program.goes_backward` knows; None where that cannot be seen."""
    receiver, method = method_of(call)
    if method == "backward" and isinstance(receiver, Call) and method_of(receiver)[1] == "scale":
        call = receiver
    elif method == "backward" and (not call.arguments or "loss" in render(receiver or Name("")).lower()):
        return receiver
    return call.arguments[0].value if call.arguments and not call.arguments[0].star else None


def steps_by_itself(call: Call) -> bool:
    """A call that gets the loss and the optimizer goes backward and steps: `loss_scaler(loss, optimizer)`."""
    names = [dotted(argument.value).rpartition(".")[2].lower() for argument in call.arguments[:2]]
    return len(names) == 2 and "loss" in names[0] and "optim" in names[1]


def _always_here(condition: Expression) -> bool:
    """`if __name__ == "__main__"`, `if torch.cuda.is_available()`, `if device.type == "cuda"`."""
    text = render(condition)
    alone = not isinstance(condition, Operation) or condition.operator == "=="
    return alone and ("__name__" in text or "cuda.is_available" in text or "'cuda'" in text)


def _iterates(value: Expression) -> bool:
    return isinstance(value, Other) and value.kind == "iterate"
