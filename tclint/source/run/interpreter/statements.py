"""Statements: sequences, branches, exceptions, contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tclint.source.run.blocks import Branch, Statement, Step
from tclint.source.run.conditions import atoms, exclude, truth
from tclint.source.run.interpreter.store import Changes
from tclint.source.run.values import (
    NEVER,
    NONE,
    Atom,
    Constant,
    Frame,
    FunctionValue,
    Option,
    Path,
    Region,
    Symbol,
    Thing,
    Union,
    Value,
    either,
)
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    CallEvent,
    Definition,
    Discard,
    Jump,
    Name,
    Return,
)

if TYPE_CHECKING:
    pass
from tclint.source.run.interpreter.assignments import Assignments

FALLS, LEAVES_ROUND, RETURNS, RAISES = range(4)
"""How a sequence of statements ends: it falls through, leaves the round of its loop, returns or raises."""


class Statements(Assignments):
    """Runs statements."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._leaving: list[list[Changes]] = []
        """The changes made on paths that left the round of a loop, or the function, early."""
        self._on_yield: list[Callable[[Value], int] | None] = []

    # -- bodies

    def run_body(self, frame: Frame, on_yield: Callable[[Value], int] | None) -> bool:
        """Run the body of a function, a module or a class; return whether a return or raise ended it."""
        self._leaving.append([])
        self._on_yield.append(on_yield)
        try:
            status = self._run_steps(frame.file.steps(frame.function))
        finally:
            self._on_yield.pop()
            left = self._leaving.pop()
        for changes in left:
            self.store.merge([(changes, ()), ({}, ())])
        return status in (RETURNS, RAISES)

    def _run_steps(self, steps: list[Step]) -> int:
        path = self.path
        status = FALLS
        for step in steps:
            status = self._run_statement(step) if isinstance(step, Statement) else self._run_event(step)
            if status:
                break
        self.path = path
        return status

    def _run_event(self, event: Any) -> int:
        kind = type(event)
        if kind is CallEvent:
            return RAISES if self.run_call(event.call) is NEVER else FALLS
        if kind is Assignment:
            self._assign(event)
        elif kind is Definition:
            self._define(self.frame.file.tables.functions[event.function])
        elif kind is Return:
            self._stop_round(event.is_yield)
            return self._return(event)
        elif kind is Jump:
            self._stop_round(False)
            return RAISES if event.kind == "raise" else LEAVES_ROUND
        elif kind is Discard:
            pass
        return FALLS

    def _stop_round(self, is_yield: bool) -> None:
        """Note that a round of the current function's innermost loop may end here."""
        if not is_yield and len(self.loops) > self.frame.depth:
            self.loops[-1].loop.stops = True

    def _return(self, event: Return) -> int:
        self.node_id = event.node_id
        value = self.evaluate(event.value)
        if not event.is_yield:
            self.frame.returns.append(Option(value, self.path))
            return RETURNS
        on_yield = self._on_yield[-1]
        if on_yield is None:
            self.frame.yields.append(value)
            return FALLS
        return RETURNS if on_yield(value) == RETURNS else FALLS

    # -- statements with blocks

    def _run_statement(self, statement: Statement) -> int:
        kind = statement.kind
        if kind in ("if", "else"):
            return self._run_if(statement)
        if kind == "loop":
            return self._run_loop(statement)
        if kind == "each":
            self._run_each(statement.branches[0])
            return FALLS
        if kind == "with":
            return self._run_with(statement.branches[0])
        if kind in ("try", "except", "finally"):
            return self._run_try(statement)
        if kind == "case":
            return self._run_match(statement)
        return self._run_branches(statement.branches)

    def _run_branches(self, branches: list[Branch]) -> int:
        status = FALLS
        for branch in branches:
            status = self._run_steps(branch.body)
            if status:
                break
        return status

    def _run_if(self, statement: Statement) -> int:
        branches = {branch.block.kind: branch for branch in statement.branches}
        condition = statement.branches[0].block.condition
        self.node_id = statement.branches[0].block.node_id
        value = self.evaluate(condition) if condition is not None else self.unknown()
        self.node_id = statement.branches[0].block.node_id
        known = truth(value, self.path)
        if known is not None:
            chosen, other = (branches.get(kind) for kind in (("if", "else") if known else ("else", "if")))
            if other is not None and isinstance(value, Constant) and not self.frame.file.is_library:
                self._look_at(other.body)
            return self._run_steps(chosen.body) if chosen is not None else FALLS
        self.looks_at(value)
        return self._run_ways(
            [
                (atoms(value, True), branches["if"].body if "if" in branches else []),
                (atoms(value, False), branches["else"].body if "else" in branches else []),
            ]
        )

    def _look_at(self, steps: list[Step]) -> None:
        """Note the superseded names that a branch calls, although a constant of the program
        switches it off."""
        for step in steps:
            if isinstance(step, Statement):
                for branch in step.branches:
                    self._look_at(branch.body)
            elif isinstance(step, CallEvent):
                function = step.call.function
                head = function.dotted.partition(".")[0] if isinstance(function, Name) else ""
                is_library = bool(head) and isinstance(self.lookup(head), Symbol)
                called = self.evaluate(function) if is_library else NONE
                name = called.name if isinstance(called, Symbol) else ""
                if isinstance(called, FunctionValue) and called.file.is_library:
                    name = f"{called.file.name}.{called.function.name}"
                if self.library.is_superseded(name):
                    self.happen("off", name, None, {}, step.call)

    def _run_ways(self, ways: list[tuple[Path, list[Step]]]) -> int:
        """Run the branches of a test from the same state, and go on with those that fall through."""
        path = self.path
        outcomes: list[tuple[int, Changes, Path]] = []
        for guard, body in ways:
            mark, start = self.store.start(), len(self.record.events)
            self.path = (*path, *guard)
            try:
                status = self._run_steps(body)
                if status == RAISES:
                    for event in self.record.events[start:]:
                        event.precedes_error = True
            finally:
                self.path = path
                changes = self.store.undo(mark)
            outcomes.append((status, changes, guard))
        through = [(changes, guard) for status, changes, guard in outcomes if status == FALLS]
        for status, changes, _ in outcomes:
            if status in (LEAVES_ROUND, RETURNS) and changes:
                self._leaving[-1].append(changes)
        if not through:
            return min(status for status, _, _ in outcomes)
        if len(through) == 1:
            self.store.keep(through[0][0])
            if len(outcomes) > 1:
                # The rest of the block runs on this branch alone.
                self.path = (*path, *through[0][1])
                statuses = {status for status, _, _ in outcomes}
                if statuses <= {FALLS, RAISES}:
                    self.record.required.update(through[0][1])
                elif statuses <= {FALLS, RAISES, RETURNS}:
                    for round_ in self.loops[self.frame.depth :]:
                        round_.loop.lasts_while.update(through[0][1])
        else:
            self.store.merge(through)
        return FALLS

    def _run_match(self, statement: Statement) -> int:
        subject = self.unknown("match")
        path = self.path
        ways: list[tuple[Path, list[Step]]] = []
        for number, branch in enumerate(statement.branches):
            ways.append(((Atom("==", subject, Constant(number), True),), branch.body))
        self.path = path
        return self._run_ways(ways)

    def _run_try(self, statement: Statement) -> int:
        if self._imports_in(statement) and not any(item.block.kind == "try" for item in statement.branches):
            # The import is taken to succeed, so handlers that replace it do not run.
            return FALLS
        failed = self.chosen_outside(Constant("exception"))
        status = FALLS
        handlers = []
        finals = []
        for branch in statement.branches:
            if branch.block.kind == "try":
                status = self._run_steps(branch.body)
            elif branch.block.kind == "except":
                handlers.append(branch)
            elif branch.block.kind == "try_else" and not status:
                status = self._run_steps(branch.body)
            elif branch.block.kind == "finally":
                finals.append(branch)
        if handlers:
            which = self.unknown("exception type")
            ways: list[tuple[Path, list[Step]]] = [((Atom("truth", failed, None, False),), [])]
            for number, branch in enumerate(handlers):
                guard = (
                    Atom("truth", failed, None, True),
                    Atom("==", which, Constant(number), True),
                )
                ways.append((guard, branch.body))
            path = self.path
            after = self._run_ways(ways)
            if not status:
                # Code after a handler that leaves runs only without an exception; no other test depends on
                # that.
                self.path = path
            status = status if not after else min(status, after)
        for branch in finals:
            final = self._run_steps(branch.body)
            status = final or status
        return status

    def _imports_in(self, statement: Statement) -> bool:
        """Bind the names that a `try` statement imports; return whether it imports any."""
        frame = self.frame
        blocks = frame.function.blocks
        found = False
        for item in frame.function.imports:
            around = (blocks[index] for index in frame.function.enclosing(item.block))
            if item.name != "*" and any(
                block.kind == "try" and block.statement == statement.number for block in around
            ):
                found = True
                if item.name not in frame.names:
                    self._imported(frame, item.name)
        return found

    # -- contexts

    def _run_with(self, branch: Branch) -> int:
        item = branch.block.items[0]
        value = self.evaluate(item.value)
        self.node_id = item.node_id
        if isinstance(value, Union):
            known = [option.value for option in value.options if not exclude(option.guard, self.path)]
            value = known[0] if len(known) == 1 else value
        if isinstance(value, Thing) and value.kind == "managed":
            return self._run_managed(value, branch)
        regions = self.regions
        self.enter_region(value)
        entered = self._enter(value)
        if entered is not None and isinstance(value, Thing):
            value.fields["@entered"] = entered
        try:
            return self._run_steps(branch.body)
        finally:
            self.regions = regions
            if isinstance(value, Thing) and value.cls is not None:
                left = value.cls.find("__exit__")
                if isinstance(left, FunctionValue):
                    self.call_value(left.bound_to(value), [NONE, NONE, NONE], {})

    def _enter(self, value: Value) -> Value | None:
        if isinstance(value, Thing) and value.cls is not None:
            enter = value.cls.find("__enter__")
            if isinstance(enter, FunctionValue):
                return self.call_value(enter.bound_to(value), [], {})
        return None

    def entered(self, value: Value) -> Value:
        """What `with value as x` binds."""
        if isinstance(value, Thing):
            return value.fields.get("@entered", value)
        return value

    def enter_region(self, context: Value) -> None:
        """Enter a context; it lasts until the current `with` statement or function ends."""
        region = Region(context, self.here, self.path)
        self.regions = (*self.regions, region)
        region.entered = self.happen("enter", "", context, {})

    def _run_managed(self, value: Thing, branch: Branch) -> int:
        """Run a `with` over a function under contextlib.contextmanager: its body runs at the yield."""
        function = value.fields["function"]
        assert isinstance(function, FunctionValue)
        outer = (self.frame, self.stack, self.loops)
        statuses = [FALLS]

        def body(yielded: Value) -> int:
            inside = (self.frame, self.stack, self.loops)
            self.frame, self.stack, self.loops = outer
            value.fields["@entered"] = yielded
            self._on_yield.append(None)
            self._leaving.append([])
            try:
                statuses.append(self._run_steps(branch.body))
            finally:
                self._leaving.pop()
                self._on_yield.pop()
                self.frame, self.stack, self.loops = inside
            return FALLS

        self.run_generator(value, body)
        return max(statuses)

    def run_generator(self, generator: Thing, on_yield: Callable[[Value], int] | None) -> Frame:
        """Run a generator's body and call `on_yield` at each yield."""
        function = generator.fields["function"]
        assert isinstance(function, FunctionValue)
        given = self.exact_items(generator.fields["arguments"]) or []
        keywords = {str(key[1]): item for key, item in generator.fields.items() if isinstance(key, tuple)}
        frame = self.enter_function(function, given, keywords)
        busy = sum(place.function is function.function for place in self.stack)
        if busy <= 1 and not self.exhausted:
            self.run_frame(frame, function, Call(Name(""), (), self.node_id), on_yield)
        return frame

    def yielded(self, generator: Thing) -> Value:
        frame = self.run_generator(generator, None)
        return either(*frame.yields) if frame.yields else self.unknown("item")

    def _run_loop(self, statement: Statement) -> int:
        raise NotImplementedError

    def _run_each(self, branch: Branch) -> None:
        raise NotImplementedError
