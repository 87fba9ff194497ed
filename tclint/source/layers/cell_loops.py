"""Recurrent cells that a loop calls step by step, and whether their inputs are all known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tclint.source.context import SourceContext
from tclint.source.names.queries import contains, has_star, keyword, names_in, words
from tclint.source.syntax.tables import (
    Assignment,
    Call,
    Collection,
    Expression,
    Function,
    Jump,
    Literal,
    Name,
    Other,
    Return,
    Subscript,
    dotted,
    method_of,
    parts_of,
)

_CELLS = {"torch.nn.LSTMCell": "LSTM", "torch.nn.GRUCell": "GRU", "torch.nn.RNNCell": "RNN"}
_FEWEST_STEPS = 4
"""A choice of this project: of a loop of fewer known steps, joining saves next to nothing."""
_GROWING = words("append extend insert add update pop popleft appendleft put remove clear")
_HOOKS = words("retain_grad register_hook")
_COUNTING = words("range len zip enumerate reversed")
_SLICING = words(
    "unbind chunk split tensor_split transpose permute swapaxes movedim moveaxis flip contiguous to float"
)
"""Methods whose result holds the steps, as views or one by one."""


class CellStep(NamedTuple):
    """One call of a cell in a loop over time."""

    function: Function
    call: Call
    loop: int
    """Its block."""
    cell: str
    kind: str
    """'LSTM', 'GRU' or 'RNN'."""


def cells_known_beforehand(context: SourceContext) -> Iterator[CellStep]:
    """The cells of a file whose every step could be given at once: the first call in each loop over time."""
    reported: set[tuple[int, int, str]] = set()
    for step in _steps(context):
        key = (step.function.index, step.loop, step.cell)
        if key not in reported and _Body(context, step).known_beforehand:
            reported.add(key)
            yield step


def _steps(context: SourceContext) -> Iterator[CellStep]:
    """Calls of a class's own cells that every turn of a `for` loop makes."""
    for function in context.tables.functions:
        if function.kind != "function":
            continue
        for event in function.calls:
            if has_star(event.call):
                continue
            called = event.call.function
            listed = isinstance(called, Subscript)
            name = dotted(called.value if isinstance(called, Subscript) else called)
            if not name.startswith("self.") or name.count(".") != 1:
                continue
            block = event.block
            while function.blocks[block].kind == "with":
                block = function.blocks[block].parent
            if function.blocks[block].kind != "loop":
                continue
            if isinstance(called, Subscript) and _changes(function, block, called.key):
                continue
            kind = _kind(context, function, name, listed)
            if kind is not None:
                yield CellStep(function, event.call, block, name, kind)


def _changes(function: Function, loop: int, key: Expression) -> bool:
    """The loop assigns what a list of cells is indexed with: another cell at each turn."""
    return any(_same(target, name) for target in function.assigned_in(loop) for name in names_in(key))


def _kind(context: SourceContext, function: Function, name: str, listed: bool) -> str | None:
    """Which recurrent layer an attribute is the cell of, or a list's items; None unless every assignment
    agrees."""
    kinds: set[str | None] = set()
    for scope, item in context.resolver.definitions(function, name)[0]:
        called = context.resolver.called(scope, item.value) if isinstance(item.value, Call) else ()
        if listed and isinstance(item.value, Call) and called == ("torch.nn.ModuleList",):
            kinds |= {_CELLS.get(made) for made in _made_in(context, scope, item.value)}
        else:
            kinds.add(_CELLS.get(called[0]) if len(called) == 1 and not (item.operator or listed) else None)
    return kinds.pop() if len(kinds) == 1 else None


def _made_in(context: SourceContext, scope: Function, value: Call) -> Iterator[str]:
    """What is called for the items of a list of modules, '' for what is not known."""
    pending = [argument.value for argument in value.arguments]
    while pending:
        part = pending.pop()
        if isinstance(part, Call) and dotted(part.function) not in _COUNTING:
            names = context.resolver.called(scope, part)
            yield names[0] if len(names) == 1 else ""
        else:
            pending.extend(parts_of(part))


class _Body:
    """What a loop does with a cell's input and state."""

    def __init__(self, context: SourceContext, step: CellStep) -> None:
        self.context = context
        self.step = step
        self.function = step.function
        self._inside = {
            position
            for position in range(len(self.function.blocks))
            if step.loop in self.function.enclosing(position)
        }
        self.assigned = [event for event in self.function.assignments if event.block in self._inside]
        self.calls = [event.call for event in self.function.calls if event.block in self._inside]

    @property
    def known_beforehand(self) -> bool:
        """Whether the inputs of all steps could be computed before the first one."""
        turn = self._turn()
        if turn is None or self._stops_early():
            return False
        state = self._state()
        given = keyword(self.step.call, "input", 0)
        if not state or given is None:
            return False
        needed = self._needed(given)
        if needed is None or any(_same(name, carried) for name in needed for carried in state):
            return False
        if self._mutates(needed | state) or self._remembers(needed, state):
            return False
        return not self._needs_every_state(state) and self._reads_a_slice(given, turn)

    def _turn(self) -> Assignment | None:
        """What the loop binds at each turn; None for `while` and for a few turns."""
        for event in self.assigned:
            value = event.value
            if event.block != self.step.loop or not (isinstance(value, Other) and value.kind == "iterate"):
                continue
            iterated = value.parts[0]
            if isinstance(iterated, Call) and dotted(iterated.function) == "range":
                bounds = [
                    self.context.resolver.evaluate(self.function, argument.value)
                    for argument in iterated.arguments
                ]
                last = bounds[min(1, len(bounds) - 1)]
                if last.values and all(isinstance(v, int) and v < _FEWEST_STEPS for v in last.values):
                    return None
            return event
        return None

    def _stops_early(self) -> bool:
        return any(
            isinstance(event, Jump | Return) and event.block in self._inside for event in self.function.events
        )

    def _state(self) -> set[str]:
        """Names that hand the state to the next step, where nothing but the cell assigns them."""
        given = keyword(self.step.call, "hx", 1)
        items = given.items if isinstance(given, Collection) and given.kind == "tuple" else (given,)
        if not all(isinstance(item, Name) for item in items):
            return set()
        carried = [dotted(item) for item in items if item is not None]
        state = set(carried)
        made = next((e for e in self.assigned if _is_call(e.value, self.step.call) and not e.operator), None)
        if made is None:
            return set()
        renamed = self._renamed(carried, made.targets)
        if renamed is not None:
            return renamed
        writes = [event for event in self.assigned if any(_same(t, s) for t in event.targets for s in state)]
        return state if writes == [made] and set(made.targets) == state else set()

    def _renamed(self, carried: list[str], made: tuple[str, ...]) -> set[str] | None:
        """Both sets of names where the results get the names of the state at the end of each turn:
        `new = cell(x, old)`, `old = new`; None where they are the same."""
        if len(carried) != len(made) or set(carried) & set(made):
            return None
        names = set(carried) | set(made)
        copies = {
            (event.targets, dotted(event.value))
            for event in self.assigned
            if event.block == self.step.loop and not event.operator
        }
        wanted = {((old,), new) for old, new in zip(carried, made, strict=True)}
        writes = sum(any(_same(t, name) for name in names) for e in self.assigned for t in e.targets)
        return names if wanted <= copies and writes == 2 * len(made) else set()

    def _needed(self, given: Expression) -> set[str] | None:
        """Names that the input is made of in one turn; None where something unknown is called."""
        needed: set[str] = set()
        pending = [given]
        while pending:
            value = pending.pop()
            if contains(value, self._unknown_call):
                return None
            for name in names_in(value) - needed:
                needed.add(name)
                pending.extend(
                    event.value
                    for event in self.assigned
                    if any(_same(name, target) for target in event.targets)
                )
        return needed

    def _unknown_call(self, part: Expression) -> bool:
        """A call that may read the state unseen: a method of the class, a function that is not torch's."""
        if not isinstance(part, Call):
            return False
        name = dotted(part.function)
        resolver = self.context.resolver
        if not name:
            return False
        if resolver.local_functions(self.function, part.function):
            return True
        if name.startswith("self."):
            # What the class does not assign may be a method of its base.
            return not resolver.definitions(self.function, name)[0]
        if name in ("range", "enumerate", "zip", "reversed", "len", "torch.unbind", "min", "max", "int"):
            return False
        known = resolver.qualified(self.function, name)
        if known:
            return not all(candidate.startswith("torch.") for candidate in known)
        return "." not in name

    def _mutates(self, names: set[str]) -> bool:
        for call in self.calls:
            receiver, method = method_of(call)
            changes = method in _GROWING or (method.endswith("_") and not method.endswith("__"))
            if (
                changes
                and receiver is not None
                and any(_same(name, other) for name in names_in(receiver) for other in names)
            ):
                return True
        return False

    def _needs_every_state(self, state: set[str]) -> bool:
        """Whether the loop reads what a recurrent layer does not give out: an LSTM's cell state at each
        step, or the gradient of a step's state."""
        if self.step.kind == "LSTM":
            given = keyword(self.step.call, "hx", 1)
            paired = given.items if isinstance(given, Collection) else ()
            kept = {dotted(paired[1])} if len(paired) == 2 else state
            handed_on = {
                event.targets: dotted(event.value) for event in self.assigned if kept >= set(event.targets)
            }
            kept |= set(handed_on.values()) - {""}
            values: list[Expression] = [call for call in self.calls if call.node_id != self.step.call.node_id]
            values += [
                event.value
                for event in self.assigned
                if event.targets not in handed_on and not _is_call(event.value, self.step.call)
            ]
            if any(_reads(value, kept) for value in values):
                return True
        return any(method_of(call)[1] in _HOOKS for call in self.calls)

    def _remembers(self, needed: set[str], state: set[str]) -> bool:
        """Whether something that the input is read from is told of the state: `memory.write(h)`."""
        roots = {_holder(name) for name in needed if not self.context.resolver.qualified(self.function, name)}
        for call in self.calls:
            if call.node_id == self.step.call.node_id:
                continue
            told = {name for argument in call.arguments for name in names_in(argument.value)}
            if any(_same(name, carried) for name in told for carried in state) and any(
                _holder(name) in roots for name in names_in(call.function)
            ):
                return True
        return False

    def _reads_a_slice(self, given: Expression, turn: Assignment) -> bool:
        """Whether the input is made of a step of something that exists before the loop."""
        value = turn.value.parts[0] if isinstance(turn.value, Other) else turn.value
        counted = isinstance(value, Call) and dotted(value.function) == "range"
        listed = isinstance(value, Call) and dotted(value.function) in ("enumerate", "zip", "reversed")
        sliced = isinstance(value, Call) and method_of(value)[1] in _SLICING
        whole = isinstance(value, Name) and not value.dotted.startswith("self.")
        if not (counted or listed or sliced or whole):
            return False
        written = {target for event in self.assigned for target in event.targets}
        positions = set(turn.targets)

        def test(part: Expression) -> bool:
            if isinstance(part, Subscript) and names_in(part.key) & positions:
                base = names_in(part.value)
                return bool(base) and not base & written
            return not counted and isinstance(part, Name) and _root(part.dotted) in positions

        seen: set[str] = set()
        pending = [given]
        while pending:
            part = pending.pop()
            if contains(part, test):
                return True
            for name in names_in(part) - seen:
                seen.add(name)
                pending.extend(
                    event.value
                    for event in self.assigned
                    if event is not turn and any(_same(name, target) for target in event.targets)
                )
        return False


def _is_call(value: Expression, call: Call) -> bool:
    """All calls of a step have one node id: whether the value is this very call."""
    return isinstance(value, Call) and value.node_id == call.node_id


def _root(name: str) -> str:
    return name.split(".", 1)[0]


def _reads(value: Expression, names: set[str]) -> bool:
    """Whether an expression reads one of the names, other than its first item (`state[0]`)."""
    if isinstance(value, Subscript) and value.key == Literal(0) and dotted(value.value) in names:
        return False
    if isinstance(value, Name):
        return any(_same(value.dotted, name) for name in names)
    return any(_reads(part, names) for part in parts_of(value))


def _holder(name: str) -> str:
    """The variable or attribute of `self` that a dotted name begins with."""
    parts = name.split(".")
    return ".".join(parts[: 2 if parts[0] == "self" else 1])


def _same(name: str, other: str) -> bool:
    """Whether two dotted names are one thing, or one of them a part of the other."""
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")
