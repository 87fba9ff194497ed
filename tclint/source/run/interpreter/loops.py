"""Loops: which rounds are run, and with what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tclint.source.run.blocks import Branch, Statement
from tclint.source.run.conditions import truth
from tclint.source.run.values import (
    NONE,
    Constant,
    FunctionValue,
    Loop,
    Round,
    Thing,
    Value,
    either,
    integers_of,
)
from tclint.source.syntax.tables import (
    Assignment,
    Other,
)

if TYPE_CHECKING:
    pass
from tclint.source.run.interpreter.statements import FALLS, RETURNS, Statements

_MOST_ITEMS = 32
"""The most rounds that are run one by one; nested loops share them."""
_GOES_THROUGH = frozenset({"iterator", "progress"})
_MOST_KEYS = 64
"""The most keys of a dict that a loop goes through one by one, however deeply it is nested."""
_MOST_ROUNDS_OVER_KEYS = 2_000
"""The most such rounds of a program beyond those of other loops: configurations have hundreds of keys."""
_MOST_ROUNDS = 4
"""A loop may run this many rounds one by one however deeply it is nested."""


def _blocks_of_elements(branch: Branch) -> Iterator[int]:
    """The 'each' blocks of a comprehension, from the outermost on."""
    yield branch.index
    for step in branch.body:
        if isinstance(step, Statement):
            for inner in step.branches:
                yield from _blocks_of_elements(inner)


class Loops(Statements):
    """Runs loops and comprehensions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._once = 0
        """Greater than 0 in the second round of a loop; inner loops then run only one round."""
        self._keys_left = _MOST_ROUNDS_OVER_KEYS

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
                return FALLS
            self.looks_at(condition)
        generator = self._generator_in(over)
        if generator is not None:
            return self._run_generated(generator, over, branch, key)
        status = self._run_rounds(branch, over, key)
        for other in statement.branches[1:]:
            if status == FALLS:
                status = self._run_steps(other.body)
        return status if status == RETURNS else FALLS

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

    def _has_room(self, over: Value | None, rounds: int, room: int) -> bool:
        """Whether so many rounds are run one by one; those over the keys of a dict may be more."""
        if rounds <= room:
            return True
        is_of_dict = isinstance(over, Thing) and (over.kind == "dict" or "@of dict" in over.fields)
        if not is_of_dict or rounds > min(_MOST_KEYS, self._keys_left):
            return False
        self._keys_left -= rounds
        return True

    def _rounds_of(self, over: Value | None) -> tuple[int, Iterator[Value | None]]:
        """The number of rounds (0 if not all are known) and the items that they get: each known item, or
        twice what any round gets."""
        is_range = isinstance(over, Thing) and over.kind == "range" and self._is_exact(over)
        known = self._known_rounds(over) if over is not None else None
        if known and self._has_room(over, len(known), 1 if is_range else self._room()):
            return len(known) if self._is_exact(over) else 0, iter(known)
        return 0, (self.element(over) if over is not None else None for _ in range(1 if self._once else 2))

    def _run_rounds(self, branch: Branch, over: Value | None, key: Any) -> int:
        count, rounds = self._rounds_of(over)
        loop = Loop(self.here, over, len(self.path), count)
        loops, path = self.loops, self.path
        # A list may be filled by code that is not seen.
        is_whole = isinstance(over, Thing) and over.kind in ("module", "tuple")
        is_empty = over is not None and is_whole and self.exact_items(over) == []
        status = FALLS
        number = 0
        while not is_empty:
            self.loops = (*loops, Round(loop, number))
            second = number > 0 and not count
            before = len(self.record.events)
            self._once += second
            self.node_id = branch.block.node_id
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
            # A second round that is cut off midway would tell less than none.
            done = len(self.record.events)
            has_room = done + (0 if count else done - before) <= self.most_events
            if status == RETURNS or self.exhausted or not has_room:
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
        statuses = [FALLS]

        def body(yielded: Value) -> int:
            inside = (self.frame, self.stack, self.loops, self.node_id)
            depth = len(self.path)
            loop = loops.setdefault(depth, Loop(here, generator, depth))
            loop.source = self.loops[-1].loop if len(self.loops) > around else None
            self.loops = (*self.loops, Round(loop, len(statuses) - 1))
            (self.frame, self.stack), self.node_id = outer, here.node_id
            self.frame.results[key] = self._as_counted(over, yielded)
            self._on_yield.append(outer_yield)
            self._leaving.append([])
            try:
                status = self._run_steps(branch.body)
            finally:
                for changes in self._leaving.pop():
                    self.store.merge([(changes, ()), ({}, ())])
                self._on_yield.pop()
                self.frame, self.stack, self.loops, self.node_id = inside
            statuses.append(status)
            return FALLS

        outer_yield = self._on_yield[-1] if self._on_yield else None
        self.run_generator(generator, body)
        return RETURNS if RETURNS in statuses else FALLS

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
        if known is None or not self._has_room(over, len(known), self._room()):
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
