"""Runs statements: functions, branches, loops, contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from tclint.source.run.blocks import Branch, Statement, Step
from tclint.source.run.calls import Calls
from tclint.source.run.conditions import atoms, exclude, truth
from tclint.source.run.files import File
from tclint.source.run.library import Program
from tclint.source.run.store import Changes
from tclint.source.run.values import (
    NEVER,
    NONE,
    Atom,
    ClassValue,
    Constant,
    Event,
    Frame,
    FunctionValue,
    Loop,
    Option,
    Path,
    Place,
    Region,
    Round,
    Symbol,
    Thing,
    Union,
    Value,
    either,
    integers_of,
    options_of,
)
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    CallEvent,
    Collection,
    Definition,
    Discard,
    Expression,
    Function,
    Jump,
    Name,
    Other,
    Return,
    Subscript,
)

if TYPE_CHECKING:
    from tclint.source.syntax.parse import Parsed

_FALLS, _LEAVES_ROUND, _RETURNS, _RAISES = range(4)
"""How a sequence of statements ends: it falls through, leaves the round of its loop, returns or raises."""
_MOST_ITEMS = 32
"""The most rounds that are run one by one; nested loops share them."""
_GOES_THROUGH = frozenset({"iterator", "progress"})
_MOST_ROUNDS = 4
"""A loop may run this many rounds one by one however deeply it is nested."""
_NUMBERED = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>")


@cache
def _parsed(text: str) -> Parsed:
    """The tables of a library's summary, parsed once for all programs."""
    from tclint.source.syntax.parse import parse

    return parse(text)


class Machine(Calls):
    """The whole interpreter."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._once = 0
        """Greater than 0 in the second round of a loop; inner loops then run only one round."""
        self._summaries: dict[str, File] = {}
        self.looked_at = 0
        """The number of events in which modules without a call have been searched for."""
        self.modules: list[tuple[Event, Thing]] = []
        """Modules that were made and not called so far, each with the event that made it."""
        self.called: set[Thing] = set()
        self.objects: dict[ClassValue, list[Thing]] = {}
        self.run_alone_of: dict[object, int] = {}
        """Class -> the number of its modules that were run although the program does not call them."""
        self._leaving: list[list[Changes]] = []
        """The changes made on paths that left the round of a loop, or the function, early."""
        self._on_yield: list[Callable[[Value], int] | None] = []

    # -- files

    def run_file(self, file: File, name: str = "__main__") -> None:
        """Run a file as a program."""
        file.name = name
        self.run_module(file)

    def run_module(self, file: File) -> None:
        """Run the body of a file, once."""
        if file in self.frames:
            return
        self.frames[file] = Frame(file, file.tables.module, None)
        saved = (self.frame, self.path, self.loops, self.regions, self.stack, self.node_id)
        self.path, self.loops, self.regions, self.stack = (), (), (), ()
        self.frame = self.frames[file]
        try:
            with self.store.lasting():
                self.run_body(self.frame, None)
        finally:
            self.frame, self.path, self.loops, self.regions, self.stack, self.node_id = saved

    def summary(self, program: Program) -> File:
        found = self._summaries.get(program.name)
        if found is None:
            parsed = _parsed(program.text)
            found = File(
                f"<{program.name}>",
                parsed.tables,
                lambda: parsed.spans,
                lambda: parsed.lines,
                name=program.name,
                is_library=True,
            )
            self._summaries[program.name] = found
            self.run_module(found)
        return found

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
        return status in (_RETURNS, _RAISES)

    def _run_steps(self, steps: list[Step]) -> int:
        path = self.path
        status = _FALLS
        for step in steps:
            status = self._run_statement(step) if isinstance(step, Statement) else self._run_event(step)
            if status:
                break
        self.path = path
        return status

    def _run_event(self, event: Any) -> int:
        kind = type(event)
        if kind is CallEvent:
            return _RAISES if self.run_call(event.call) is NEVER else _FALLS
        if kind is Assignment:
            self._assign(event)
        elif kind is Definition:
            self._define(self.frame.file.tables.functions[event.function])
        elif kind is Return:
            self._stop_round(event.is_yield)
            return self._return(event)
        elif kind is Jump:
            self._stop_round(False)
            return _RAISES if event.kind == "raise" else _LEAVES_ROUND
        elif kind is Discard:
            pass
        return _FALLS

    def _stop_round(self, is_yield: bool) -> None:
        """Note that a round of the current function's innermost loop may end here."""
        if not is_yield and len(self.loops) > self.frame.depth:
            self.loops[-1].loop.stops = True

    def _return(self, event: Return) -> int:
        self.node_id = event.node_id
        value = self.evaluate(event.value)
        if not event.is_yield:
            self.frame.returns.append(Option(value, self.path))
            return _RETURNS
        on_yield = self._on_yield[-1]
        if on_yield is None:
            self.frame.yields.append(value)
            return _FALLS
        return _RETURNS if on_yield(value) == _RETURNS else _FALLS

    # -- definitions

    def _define(self, function: Function) -> None:
        frame = self.frame
        value: Value
        if function.kind == "class":
            value = self._class(function)
        else:
            owner = frame.cls if frame.function.kind == "class" else None
            value = FunctionValue(frame.file, function, frame, owner)
        self.node_id = function.node_id
        for decorator in reversed(function.decorators):
            value = self._decorated(self.evaluate(decorator), value)
        self.store.write(frame.names, function.name, value)

    def _class(self, function: Function) -> ClassValue:
        value = ClassValue(self.frame.file, function, tuple(self.evaluate(base) for base in function.bases))
        body = Frame(self.frame.file, function, self.frame)
        body.names = value.namespace
        body.cls = value
        outer = self.frame
        self.frame = body
        try:
            self.run_body(body, None)
        finally:
            self.frame = outer
        return value

    def _decorated(self, decorator: Value, value: Value) -> Value:
        """Apply a decorator to a function or class; an unknown decorator leaves it as it is."""
        if isinstance(decorator, Symbol):
            name = decorator.name.rpartition(".")[2]
            if decorator.name.startswith("dataclasses."):
                return self._as_dataclass(value)
            if name in ("staticmethod", "classmethod", "property", "cached_property"):
                made = Thing("property" if name == "cached_property" else name)
                made.fields["function"] = value
                return made
            spec = self.library.call(decorator.name)
            if spec is not None and spec.returns == "memo":
                return self._remembered(value)
            if spec is not None and spec.event == "wrap":
                self.happen("wrap", decorator.name, None, {"model": value})
            if spec is not None and self.library.is_a(spec.returns, "context"):
                decorator = self.call_symbol(
                    decorator.name, [], {}, Call(Name(decorator.name), (), self.node_id)
                )
            elif decorator.name == "contextlib.contextmanager":
                made = Thing("contextmanager")
                made.fields["function"] = value
                return made
            else:
                self.happen("decorate", decorator.name, None, {"function": value})
                return value
        if isinstance(decorator, Thing):
            if decorator.kind == "dataclass":
                return self._as_dataclass(value)
            if decorator.kind and self.library.is_a(decorator.kind, "context"):
                if isinstance(value, FunctionValue):
                    return FunctionValue(
                        value.file,
                        value.function,
                        value.frame,
                        value.owner,
                        value.receiver,
                        (*value.regions, decorator),
                    )
                return value
            if decorator.kind == "memo":
                return self._remembered(value)
            if decorator.kind == "wraps":
                return value
        is_partial = isinstance(value, Thing) and value.kind == "partial"
        if isinstance(decorator, FunctionValue) and (
            is_partial or isinstance(value, FunctionValue | ClassValue)
        ):
            made_by = self.call_value(decorator, [value], {})
            if is_partial or (isinstance(made_by, Thing) and made_by.kind == "partial"):
                return made_by
            if isinstance(made_by, FunctionValue):
                return (
                    FunctionValue(
                        made_by.file, made_by.function, made_by.frame, value.owner, None, made_by.regions
                    )
                    if isinstance(value, FunctionValue)
                    else value
                )
            if isinstance(made_by, ClassValue):
                return made_by
        return value

    def _remembered(self, value: Value) -> Value:
        if isinstance(value, FunctionValue):
            self.remembering.add((value.file.path, value.function.index))
        return value

    def _as_dataclass(self, value: Value) -> Value:
        if isinstance(value, ClassValue):
            value.is_dataclass = True
        return value

    # -- assignments

    def _assign(self, event: Assignment) -> None:
        self.node_id = event.node_id
        source = event.value
        if isinstance(source, Other) and source.kind == "iterate":
            value = self.frame.results.get(("iterate", event.block))
            if value is None:
                value = self.element(self.evaluate(source.parts[0]))
        elif isinstance(source, Other) and source.kind == "declared":
            return
        else:
            value = self.evaluate(source)
        if event.operator:
            self._assign_in_place(event, value)
        elif event.into is not None:
            self._assign_to(event.into, value)
        else:
            self._assign_name(event.targets[0], value)

    def _assign_in_place(self, event: Assignment, value: Value) -> None:
        target: Expression = event.into if event.into is not None else Name(event.targets[0])
        if event.operator == "[]":
            self._assign_to(target, value)
            return
        before = self.evaluate(target)
        if (
            self.is_sequence(before)
            and isinstance(before, Thing)
            and before.kind == "list"
            and event.operator == "+"
        ):
            self.extend(before, value)
            return
        if self.is_tensor(before) and isinstance(before, Thing):
            made = self.tensor("op", f"{event.operator}=", before, {"other": value})
            if before.made is not None and before.made.kind == "grad":
                return
            value = made
        else:
            value = self.binary(event.operator, before, value)
            if (
                isinstance(value, Thing)
                and value.is_unknown
                and isinstance(before, Thing)
                and before.kind == "number"
            ):
                # The number differs from round to round.
                value = Thing("number")
        self._assign_to(target, value)

    def _assign_to(self, target: Expression, value: Value) -> None:
        if isinstance(target, Name):
            self._assign_name(target.dotted, value)
        elif isinstance(target, Subscript):
            self.set_item(self.evaluate(target.value), self.evaluate(target.key), value)
        elif isinstance(target, Attribute):
            self.set_attribute(self.evaluate(target.value), target.name, value)
        elif isinstance(target, Collection):
            self._assign_parts(target, value)

    def _assign_parts(self, target: Collection, value: Value) -> None:
        items = target.items
        starred = [position for position, item in enumerate(items) if isinstance(item, Other)]
        if starred:
            element = self.element(value)
            for item in items:
                if isinstance(item, Other):
                    self._assign_to(item.parts[0], self.container("list", None, element))
                else:
                    self._assign_to(item, element)
            return
        for item, part in zip(items, self.unpacked(value, len(items)), strict=True):
            self._assign_to(item, part)

    def _assign_name(self, name: str, value: Value) -> None:
        frame = self.frame
        head, _, last = name.rpartition(".")
        if head:
            if last in frame.file.counted_attributes:
                value = self.counter(value)
            self.set_attribute(self.evaluate(Name(head)), last, value)
            return
        if name in frame.file.counters(frame.function) or name in frame.file.counted_globals:
            value = self.counter(value)
        if name in frame.function.outer_names:
            outer = frame.outer
            while outer is not None and outer.outer is not None and name not in outer.names:
                outer = outer.outer
            if outer is not None:
                self.store.write(outer.names, name, value)
                return
        self.store.write(frame.names, name, value)

    # -- statements with blocks

    def _run_statement(self, statement: Statement) -> int:
        kind = statement.kind
        if kind in ("if", "else"):
            return self._run_if(statement)
        if kind == "loop":
            return self._run_loop(statement)
        if kind == "each":
            self._run_each(statement.branches[0])
            return _FALLS
        if kind == "with":
            return self._run_with(statement.branches[0])
        if kind in ("try", "except", "finally"):
            return self._run_try(statement)
        if kind == "case":
            return self._run_match(statement)
        return self._run_branches(statement.branches)

    def _run_branches(self, branches: list[Branch]) -> int:
        status = _FALLS
        for branch in branches:
            status = self._run_steps(branch.body)
            if status:
                break
        return status

    def _run_if(self, statement: Statement) -> int:
        branches = {branch.block.kind: branch for branch in statement.branches}
        condition = statement.branches[0].block.condition
        value = self.evaluate(condition) if condition is not None else self.unknown()
        self.node_id = statement.branches[0].block.node_id
        known = truth(value, self.path)
        if known is not None:
            chosen, other = (branches.get(kind) for kind in (("if", "else") if known else ("else", "if")))
            if other is not None and isinstance(value, Constant) and not self.frame.file.is_library:
                self._look_at(other.body)
            return self._run_steps(chosen.body) if chosen is not None else _FALLS
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
                if status == _RAISES:
                    for event in self.record.events[start:]:
                        event.precedes_error = True
            finally:
                self.path = path
                changes = self.store.undo(mark)
            outcomes.append((status, changes, guard))
        through = [(changes, guard) for status, changes, guard in outcomes if status == _FALLS]
        for status, changes, _ in outcomes:
            if status in (_LEAVES_ROUND, _RETURNS) and changes:
                self._leaving[-1].append(changes)
        if not through:
            return min(status for status, _, _ in outcomes)
        if len(through) == 1:
            self.store.keep(through[0][0])
            if len(outcomes) > 1:
                # The rest of the block runs on this branch alone.
                self.path = (*path, *through[0][1])
                if all(status in (_FALLS, _RAISES) for status, _, _ in outcomes):
                    self.record.required.update(through[0][1])
        else:
            self.store.merge(through)
        return _FALLS

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
            return _FALLS
        failed = self.chosen_outside(Constant("exception"))
        status = _FALLS
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
        statuses = [_FALLS]

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
            return _FALLS

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

    # -- loops

    def _run_loop(self, statement: Statement) -> int:
        branch = statement.branches[0]
        body = branch.body
        first = body[0] if body else None
        over: Value | None = None
        if isinstance(first, Assignment) and isinstance(first.value, Other) and first.value.kind == "iterate":
            over = self.evaluate(first.value.parts[0])
            key = ("iterate", first.block)
        else:
            key = ("iterate", branch.index)
        self.node_id = branch.block.node_id
        if branch.block.condition is not None:
            condition = self.evaluate(branch.block.condition)
            if truth(condition, self.path) is False:
                return _FALLS
            self.looks_at(condition)
        generator = self._generator_in(over)
        if generator is not None:
            return self._run_generated(generator, over, branch, key)
        status = self._run_rounds(branch, over, key)
        for other in statement.branches[1:]:
            if status == _FALLS:
                status = self._run_steps(other.body)
        return status if status == _RETURNS else _FALLS

    def _known_rounds(self, over: Value | None) -> list[Value] | None:
        """The items that the rounds of a loop get, in order; None if they are not known one by one. A list
        that a loop has filled has the items of two rounds."""
        if not isinstance(over, Thing):
            return self.exact_items(over) if isinstance(over, Constant) else None
        inner = over.fields.get("over")
        if over.kind in _GOES_THROUGH:
            is_whole = over.kind == "progress" or over.name in ("iterator", ".children")
            return self._known_rounds(inner) if is_whole else None
        if over.kind == "enumerate":
            items = self._known_rounds(inner)
            is_exact = self._is_exact(over)
            return items and [
                self.container("tuple", [Constant(number) if is_exact else Thing("number"), item])
                for number, item in enumerate(items)
            ]
        if over.kind == "zip":
            several = [self._known_rounds(item) for item in self.exact_items(inner or NONE) or ()]
            known = [items for items in several if items is not None]
            if not several or len(known) < len(several):
                return None
            return [self.container("tuple", items) for items in zip(*known, strict=False)]
        if over.kind == "range":
            bounds = [integers_of(over.fields[name]) for name in ("start", "stop", "step")]
            if all(len(bound) == 1 for bound in bounds) and bounds[2][0]:
                start, stop, step = (bound[0] for bound in bounds)
                return [Constant(number) for number in range(start, stop, step)[: _MOST_ITEMS + 1]]
            items = self.ordered(counted) if (counted := self._counted(over)) is not None else None
            return [Constant(number) for number in range(len(items))] if items else None
        return self.ordered(over)

    def _counted(self, over: Thing) -> Value | None:
        """The container whose positions `range(len(...))` goes through."""
        stop = over.fields["stop"]
        operator, operands = (stop.operation if isinstance(stop, Thing) else None) or ("", ())
        return operands[0] if operator == "len" and over.fields["start"] == Constant(0) else None

    def _is_exact(self, over: Value | None) -> bool:
        """Whether a loop over a value has exactly the known rounds."""
        if not isinstance(over, Thing):
            return True
        inner = over.fields.get("over")
        if over.kind in ("enumerate", "progress"):
            return self._is_exact(inner)
        if over.kind == "zip":
            return all(self._is_exact(item) for item in self.exact_items(inner or NONE) or ())
        if over.kind == "range":
            return self._counted(over) is None
        return self.exact_items(over) is not None

    def _room(self) -> int:
        """The number of rounds of a new loop that may be run one by one, given the loops around it."""
        room = _MOST_ITEMS
        for round_ in self.loops:
            room //= max(round_.loop.rounds, 1)
        return max(room, _MOST_ROUNDS)

    def _rounds_of(self, over: Value | None) -> tuple[int, Iterator[Value | None]]:
        """The number of rounds (0 if not all are known) and the items that they get: each known item, or
        twice what any round gets."""
        is_range = isinstance(over, Thing) and over.kind == "range" and self._is_exact(over)
        known = self._known_rounds(over) if over is not None else None
        if known and len(known) <= (1 if is_range else self._room()):
            return len(known) if self._is_exact(over) else 0, iter(known)
        return 0, (self.element(over) if over is not None else None for _ in range(1 if self._once else 2))

    def _run_rounds(self, branch: Branch, over: Value | None, key: Any) -> int:
        count, rounds = self._rounds_of(over)
        loop = Loop(self.here, over, len(self.path), count)
        loops, path = self.loops, self.path
        is_empty = isinstance(over, Thing) and over.kind == "module" and self.exact_items(over) == []
        status = _FALLS
        number = 0
        while not is_empty:
            self.loops = (*loops, Round(loop, number))
            second = number > 0 and not count
            self._once += second
            try:
                # The item is made within its round.
                try:
                    value = next(rounds)
                except StopIteration:
                    break
                if value is not None:
                    self.frame.results[key] = value
                self._leaving.append([])
                status = self._run_steps(branch.body)
                left = self._leaving.pop()
                for changes in left:
                    self.store.merge([(changes, ()), ({}, ())])
            finally:
                self._once -= second
                self.loops = loops
            number += 1
            if status == _RETURNS or self.exhausted:
                break
        self.path = path
        return status

    def _generator_in(self, over: Value | None) -> Thing | None:
        """The generator that a loop goes through, directly or through `enumerate` and iterators."""
        while isinstance(over, Thing) and over.kind in ("enumerate", "iterator") and "over" in over.fields:
            over = over.fields["over"]
        if isinstance(over, Thing) and over.cls is not None:
            method = over.cls.find("__iter__")
            if isinstance(method, FunctionValue) and over.cls.find("__next__") is None:
                inner = self.call_value(method.bound_to(over), [], {})
                return self._generator_in(inner) if inner is not over else None
        return over if isinstance(over, Thing) and over.kind == "generator" else None

    def _run_generated(self, generator: Thing, over: Value | None, branch: Branch, key: Any) -> int:
        """Run a loop over a generator: its body runs where the generator yields."""
        outer = (self.frame, self.stack)
        here, around = self.here, len(self.loops)
        loops: dict[int, Loop] = {}
        """The number of tests around a yield -> the loop for yields at that depth."""
        statuses = [_FALLS]

        def body(yielded: Value) -> int:
            inside = (self.frame, self.stack, self.loops)
            depth = len(self.path)
            loop = loops.setdefault(depth, Loop(here, generator, depth))
            loop.source = self.loops[-1].loop if len(self.loops) > around else None
            self.loops = (*self.loops, Round(loop, len(statuses) - 1))
            self.frame, self.stack = outer
            self.frame.results[key] = self._as_counted(over, yielded)
            self._on_yield.append(outer_yield)
            self._leaving.append([])
            try:
                status = self._run_steps(branch.body)
            finally:
                for changes in self._leaving.pop():
                    self.store.merge([(changes, ()), ({}, ())])
                self._on_yield.pop()
                self.frame, self.stack, self.loops = inside
            statuses.append(status)
            return _FALLS

        outer_yield = self._on_yield[-1] if self._on_yield else None
        self.run_generator(generator, body)
        return _RETURNS if _RETURNS in statuses else _FALLS

    def _as_counted(self, over: Value | None, item: Value) -> Value:
        if isinstance(over, Thing) and over.kind == "enumerate":
            inner = over.fields.get("over")
            return self.container("tuple", [Thing("number"), self._as_counted(inner, item)])
        return item

    # -- comprehensions

    def _run_each(self, branch: Branch) -> None:
        results = self.frame.results
        for index in _blocks_of_elements(branch):
            results.pop(("each", index), None)
        names = {
            target: self.frame.names.get(target)
            for event in branch.body
            if isinstance(event, Assignment)
            for target in event.targets
        }
        self._go_through(branch)
        for name, before in names.items():
            if before is not None:
                self.store.write(self.frame.names, name, before)
            else:
                self.frame.names.pop(name, None)

    def _go_through(self, branch: Branch) -> None:
        first = branch.body[0]
        assert isinstance(first, Assignment)
        assert isinstance(first.value, Other)
        over = self.evaluate(first.value.parts[0])
        self.node_id = branch.block.node_id
        known = self._known_rounds(over)
        is_exact = self._is_exact(over)
        if known is None or len(known) > self._room():
            known, is_exact = [None] * (1 if self._once else 2), False  # type: ignore[list-item]
        loop = Loop(self.here, over, len(self.path), len(known) if is_exact else 0)
        loops = self.loops
        key = ("each", branch.index)
        made: list[Value] = []
        for number, item in enumerate(known):
            self.loops = (*loops, Round(loop, number))
            second = number > 0 and not is_exact
            self._once += second
            self.frame.results["iterate", first.block] = item if item is not None else self.element(over)
            self._run_steps(branch.body)
            if branch.block.condition is not None:
                made.append(self.evaluate(branch.block.condition))
            self._once -= second
        self.loops = loops
        if not made:
            return
        before = self.frame.results.get(key)
        if isinstance(branch.block.condition, Other) and branch.block.condition.kind == "pair":
            found = before if isinstance(before, Thing) else self.container("dict")
            for pair in made:
                self.update(found, pair)
        elif any(isinstance(step, Statement) and step.kind == "if" for step in branch.body):
            held = [*(self.values_in(before) if before is not None else ()), *made]
            found = self.container("list", None, either(*held)) if held else self.container("list")
        else:
            held = [*((self.ordered(before) if before is not None else ()) or ()), *made]
            is_exact &= before is None or self.exact_items(before) is not None
            found = self.container("list", held, is_exact=is_exact)
        self.frame.results[key] = found

    # -- entry points

    def begin(self, parts: int = 2) -> None:
        """Begin an entry point. Its events have no order relative to earlier entry points, and it may use
        1/`parts` of the program's events."""
        self.run_number += 1
        self.most_events = min(len(self.record.events) + self.events // parts, self.events)
        self._spent.update(self._spending)
        self._spending.clear()

    def run_unknown(self, value: FunctionValue, stack: tuple[Place, ...] = (), parts: int = 2) -> Value:
        """Run a function without a known caller, on arguments that its parameters declare; return its result.

        Args:
            stack: the places to record as the calls that lead there.
            parts: as for `begin`.
        """
        self.begin(parts)
        before, self.frame, self.stack = self.frame, value.frame, stack
        self.node_id = value.function.node_id
        frame = self.enter_function(value, [], self._undeclared(value))
        result = self.run_frame(frame, value, None)
        # An unknown caller may read the result.
        self.happen("return", value.function.qualified_name, None, {"0": result})
        self.frame = before
        return result

    def _undeclared(self, value: FunctionValue) -> dict[str, Value]:
        """Arguments for a function without a known caller."""
        found: dict[str, Value] = {}
        parameters = value.function.parameters[value.receiver is not None :]
        for parameter in parameters:
            if parameter.star:
                found[parameter.star] = self.unknown(parameter.name)
            else:
                given = self.parameter(value, parameter.name, parameter.annotation)
                default = self.default_of(value, parameter.default)
                found[parameter.name] = given if default is None else either(default, given)
        return found

    def run_alone(self, module: Thing, frame: Frame) -> None:
        """Call a module that the program makes but does not call."""
        self.begin()
        before, self.frame, self.stack = self.frame, frame, ()
        method = module.cls.find("forward") if module.cls is not None else None
        arguments: list[Value] = [self.unknown("input")]
        keywords: dict[str, Value] = {}
        if isinstance(method, FunctionValue):
            arguments, keywords = [], self._undeclared(method.bound_to(module))
        node_id = module.made.place.node_id if module.made is not None else frame.function.node_id
        self.node_id = node_id
        result = self.call_thing(module, arguments, keywords, Call(Name(""), (), node_id))
        self.happen("return", "", None, {"0": result})
        self.frame = before


def _blocks_of_elements(branch: Branch) -> Iterator[int]:
    """The 'each' blocks of a comprehension, from the outermost on."""
    yield branch.index
    for step in branch.body:
        if isinstance(step, Statement):
            for inner in step.branches:
                yield from _blocks_of_elements(inner)


__all__ = ["Machine", "options_of"]
