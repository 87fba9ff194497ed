"""Places where every training step waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.names.queries import names_in, words
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Expression,
    Function,
    Jump,
    Literal,
    Name,
    Operation,
    Other,
    Return,
    Subscript,
    dotted,
    method_of,
    parts_of,
    parts_within,
    render,
)
from tclint.source.training.across_files import functions_run_by
from tclint.source.training.device_values import TO_HOST, DeviceValues, Place
from tclint.source.training.steps import Step, loss_names, returned_losses

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_NAN_CHECKS = words("isfinite isnan isinf")
_TIMERS = words("elapsed perf time timer profiler")
_MAIN_PROCESS = words(
    "rank is_main_process is_local_main_process is_main is_master master_process is_rank_zero "
    "is_global_zero get_rank local_rank global_rank sync_gradients is_rank_0 main_process is_rank0 "
    "is_world_process_zero"
)
"""Tests that one process passes in every step, or that every optimizer step passes."""
_HELPERS_FOLLOWED = 2
_EVERYWHERE = 1 << 40
"""A node id after all others."""
_HOLDING = (b".item()", b".cpu()", b".tolist()", b".numpy()")


class Wait(NamedTuple):
    """Something that waits for the GPU."""

    node_id: int
    path: str = ""
    """Of another file that holds the wait; `node_id` is then the call that leads there."""
    line: int = 0


def waits_of(context: SourceContext, step: Step) -> list[Wait]:
    """What waits in every round of a step, in order; nothing where the step has to wait anyway: for an
    environment, or to look for NaN."""
    function = step.function
    until = max((event.call.node_id for event in step.backwards), default=_EVERYWHERE)
    known = _known_of_losses(function, step.losses, until)
    reader = _Reader(context, step, DeviceValues(context, function, known))
    return [] if reader.has_to_wait() else reader.waits()


class _Reader:
    """Finds the waits of one step."""

    def __init__(self, context: SourceContext, step: Step, values: DeviceValues, depth: int = 0) -> None:
        self.context = context
        self.step = step
        self.function = step.function
        self.values = values
        self.depth = depth

    def has_to_wait(self) -> bool:
        """Something in every round needs a value of the GPU: an environment, or a look for NaN."""
        return any(
            _needs_the_value(event.call) and self._each_round(event.block)
            for event in self.function.calls
            if self.step.block in self.function.enclosing(event.block)
        )

    def waits(self) -> list[Wait]:
        found: dict[int, Wait] = {}
        by_branch: dict[int, dict[str, list[Wait]]] = {}
        for event in self.function.events:
            if not isinstance(event, CallEvent | Assignment) or self._left_before(event):
                continue
            deciding = self._deciding(event.block)
            if deciding is None or len(deciding) > 1:
                continue
            for wait in self._of_event(event):
                if not deciding:
                    found.setdefault(wait.node_id, wait)
                    continue
                branch = self.function.blocks[deciding[0]]
                by_branch.setdefault(branch.statement, {}).setdefault(branch.kind, []).append(wait)
        for branches in by_branch.values():
            # Whichever way it goes, the step waits.
            if {"if", "else"} <= branches.keys():
                found.update((wait.node_id, wait) for waits in branches.values() for wait in waits)
        for index, block in enumerate(self.function.blocks):
            if block.kind == "if" and block.condition is not None and self._tests(index):
                found.setdefault(block.node_id, Wait(block.node_id))
        return [found[node_id] for node_id in sorted(found)]

    def _of_event(self, event: CallEvent | Assignment) -> Iterator[Wait]:
        if isinstance(event, Assignment):
            if self._formats(event.value, event.node_id) or self._masks(event.value, event.node_id):
                yield Wait(event.node_id)
            return
        call = event.call
        if self._decides(call):
            return
        if self._reads(call) or (not self._timed and self._synchronizes(call)):
            yield Wait(call.node_id)
        else:
            yield from self._of_helper(call)

    @cached_property
    def _timed(self) -> bool:
        return bool(self.context.program.words & _TIMERS)

    # -- what waits

    def _reads(self, call: Call) -> bool:
        receiver, method = method_of(call)
        at = call.node_id
        if receiver is not None and method in (*TO_HOST, "nonzero"):
            return self.values.place(receiver, at) >= Place.DERIVED and not call.arguments
        values = [argument.value for argument in call.arguments]
        certain = [value for value in values if self.values.place(value, at) is Place.TENSOR]
        name = dotted(call.function)
        if receiver is None and method in ("float", "int", "bool", "str", "print", "format"):
            if certain:
                return True
        elif (method == "format" and isinstance(receiver, Literal | Other)) or method in (
            "set_postfix",
            "add_scalar",
        ):
            return bool(certain)
        elif name == "wandb.log" and values:
            items = getattr(values[0], "items", ())
            return any(self.values.place(item, at) is Place.TENSOR for item in items)
        if "torch.nonzero" in self.context.resolver.called(self.function, call):
            return bool(certain)
        return any(self._formats(value, at) for value in values)

    def _formats(self, value: Expression, at: int) -> bool:
        """An f-string or `%` puts a tensor into a text."""
        for part in _outside_calls(value):
            if isinstance(part, Other) and part.kind == "string":
                if any(self.values.place(item, at) is Place.TENSOR for item in part.parts):
                    return True
            elif isinstance(part, Operation) and part.operator == "%":
                text, given = part.operands
                items = getattr(given, "items", (given,))
                if (
                    isinstance(text, Literal)
                    and isinstance(text.value, str)
                    and any(self.values.place(item, at) is Place.TENSOR for item in items)
                ):
                    return True
        return False

    def _masks(self, value: Expression, at: int) -> bool:
        """`outputs[outputs > 0]`: how many there are is read on the CPU."""
        return any(
            isinstance(part, Subscript)
            and isinstance(part.key, Operation)
            and part.key.operator in _COMPARISONS
            and self.values.place(part.key, at) is Place.TENSOR
            for part in _outside_calls(value)
        )

    def _synchronizes(self, call: Call) -> bool:
        return "torch.cuda.synchronize" in self.context.resolver.called(self.function, call)

    def _tests(self, index: int) -> bool:
        """`if loss > limit:` that only looks; not one that decides how the step goes on."""
        block = self.function.blocks[index]
        step = self.step
        if step.block not in self.function.enclosing(index) or index == step.block or block.condition is None:
            return False
        if not self._each_round(block.parent):
            return False
        if index in self._around_backward:
            return False
        leaves = [
            part
            for part in _outside_calls(block.condition)
            if isinstance(part, Operation) and part.operator in _COMPARISONS
        ]
        if not any(self.values.place(part, block.node_id) is Place.TENSOR for part in leaves):
            return False
        return not any(isinstance(event, Jump) and event.block == index for event in self.function.events)

    def _of_helper(self, call: Call) -> Iterator[Wait]:
        """A function of another file, or of this one, that waits whenever it is called: what gets values of
        the GPU, what makes the loss, and the file's own functions."""
        if self.depth >= _HELPERS_FOLLOWED:
            return
        passed = [self.values.place(argument.value, call.node_id) for argument in call.arguments]
        gradients = any("parameters()" in render(argument.value) for argument in call.arguments)
        made = self._loss_made_by(call)
        reads = gradients or made is not None or max(passed, default=Place.UNKNOWN) >= Place.DERIVED
        if not reads and not self.context.resolver.local_functions(self.function, call.function):
            return
        for where, helper in functions_run_by(self.context, self.function, call, _HOLDING):
            if helper.kind != "function" or (where is self.context and helper.index == self.function.index):
                continue
            if any(_needs_the_value(event.call) for event in helper.calls):
                continue
            known = self._known_inside(where, helper, call)
            losses = returned_losses(helper, made) if made is not None else ()
            known |= _known_of_losses(helper, losses, _EVERYWHERE)
            inner = Step(helper, 0, (), losses)
            waits = _Reader(where, inner, DeviceValues(where, helper, known), self.depth + 1).waits()
            for wait in waits:
                if wait.path:
                    continue
                if where is not self.context:
                    yield Wait(call.node_id, where.path, where.location(wait.node_id).line)
                    break
                yield Wait(wait.node_id)
            if waits:
                return

    def _known_inside(
        self, where: SourceContext, helper: Function, call: Call
    ) -> dict[str, tuple[int, Place]]:
        """The parameters of a function that get values of the GPU."""
        names = where.resolver.parameters(helper)
        rest = {item.star: item.name for item in helper.parameters if item.star}
        known = {}
        for position, argument in enumerate(call.arguments):
            place = min(self.values.place(argument.value, call.node_id), Place.DERIVED)
            name = argument.keyword or (names[position] if position < len(names) else rest.get("*", ""))
            if argument.keyword and argument.keyword not in names:
                name = rest.get("**", "")
            if name and place >= Place.DERIVED:
                known[name] = (0, place)
        return known

    def _loss_made_by(self, call: Call) -> int | None:
        """Which of the values that a call returns goes backward; None where none is seen to."""
        names = {name for loss in self.step.losses for name in loss_names(loss)}
        for event in self.function.assignments:
            if isinstance(event.value, Call) and event.value.node_id == call.node_id:
                return next((at for at, target in enumerate(event.targets) if target in names), None)
        return None

    # -- how often

    def _each_round(self, block: int) -> bool:
        """Whether the block runs in every round: no test around it, apart from those of the backward call
        and those that ask for the main process."""
        return self._deciding(block) == []

    def _deciding(self, block: int) -> list[int] | None:
        """The blocks around this one that do not run in every round; None outside of the step."""
        function = self.function
        found: list[int] = []
        for index in function.enclosing(block):
            if index == self.step.block:
                return found
            around = function.blocks[index]
            if index in self._around_backward or around.kind in ("with", "loop", "try"):
                continue
            if around.kind != "if" or around.condition is None or not self._always(around.condition):
                found.append(index)
        return None

    @cached_property
    def _around_backward(self) -> frozenset[int]:
        """Blocks around a backward call, or around the step of an optimizer, which accumulation puts into a
        branch of its own."""
        amp = self.context.amp
        steps = [
            event
            for event in self.function.calls
            if method_of(event.call)[1] == "step"
            and (receiver := method_of(event.call)[0]) is not None
            and self.step.backwards
            and amp.is_optimizer(self.function, receiver)
        ]
        blocks = (self.function.enclosing(event.block) for event in (*self.step.backwards, *steps))
        return frozenset(index for enclosing in blocks for index in enclosing)

    def _left_before(self, event: CallEvent | Assignment) -> bool:
        """`if step % 100: continue` stands between the backward call and the event."""
        at = event.call.node_id if isinstance(event, CallEvent) else event.node_id
        around = self.function.enclosing(event.block)
        return any(place < at and block not in around for place, block in self._exits)

    @cached_property
    def _exits(self) -> list[tuple[int, int]]:
        """Where the step is left after the backward call: the place before, and the block; once for each."""
        start = min((event.call.node_id for event in self.step.backwards), default=0)
        found: dict[int, int] = {}
        last = 0
        for event in self.function.events:
            if isinstance(event, CallEvent):
                last = event.call.node_id
            elif isinstance(event, Assignment):
                last = event.node_id
            elif isinstance(event, Jump | Return) and start <= last:
                leaves = isinstance(event, Return) or event.kind != "raise"
                if leaves and self.context.program.loop_around(self.function, event.block) == self.step.block:
                    found.setdefault(event.block, last)
        return [(place, block) for block, place in found.items()]

    def _always(self, condition: Expression) -> bool:
        """A test for the main process, for a writer, for a tensor, or `step % 1 == 0`."""
        if isinstance(condition, Operation) and condition.operator in ("and", "or"):
            return all(self._always(part) for part in condition.operands)
        modulo = [
            part for part in parts_within(condition) if isinstance(part, Operation) and part.operator == "%"
        ]
        if modulo:
            return all(
                self.context.resolver.evaluate(self.function, part.operands[1]).only == 1 for part in modulo
            )
        called = {render(part.function) for part in parts_within(condition) if isinstance(part, Call)}
        lasts = {name.rpartition(".")[2].lower() for name in names_in(condition) | called}
        if lasts & {"isinstance", "is_tensor"} and "tensor" in render(condition).lower():
            return True
        if lasts & _MAIN_PROCESS:
            return True
        if isinstance(condition, Operation) and condition.operator == "is not":
            return any("writer" in name or "wandb" in name for name in lasts)
        return isinstance(condition, Name) and ("writer" in condition.dotted or condition.dotted == "wandb")

    def _decides(self, call: Call) -> bool:
        """The value decides whether to go backward: `if loss.item() < limit: loss.backward()`."""
        return any(
            any(isinstance(part, Call) and part.node_id == call.node_id for part in parts_within(condition))
            for index in self._around_backward
            if (condition := self.function.blocks[index].condition) is not None
        )


def _outside_calls(expression: Expression) -> Iterator[Expression]:
    """Parts of an expression that are not the arguments of calls in it, which are events themselves."""
    pending = [expression]
    while pending:
        part = pending.pop()
        yield part
        if not isinstance(part, Call):
            pending.extend(parts_of(part))


def _needs_the_value(call: Call) -> bool:
    """An environment takes the action, a replay buffer the priorities; a check for NaN has to look."""
    receiver, method = method_of(call)
    if method in _NAN_CHECKS:
        return True
    text = render(receiver).lower() if receiver is not None else ""
    return (method == "step" and "env" in text) or "priorit" in method


def _known_of_losses(
    function: Function, losses: Iterable[Expression], until: int
) -> dict[str, tuple[int, Place]]:
    """What goes backward, a tensor up to a node id, and what that is the sum of."""
    names = {name for loss in losses for name in loss_names(loss)}
    parts = {
        part
        for event in function.assignments
        if names & set(event.targets)
        for part in loss_names(event.value)
    }
    return {
        **dict.fromkeys(parts - names, (until, Place.DERIVED)),
        **dict.fromkeys(names, (until, Place.TENSOR)),
    }
