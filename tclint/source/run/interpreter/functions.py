"""Calls of the project's functions and classes, which are followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tclint.source.run.interpreter.modules import Modules
from tclint.source.run.values import (
    NONE,
    ClassValue,
    Constant,
    Event,
    Frame,
    FunctionValue,
    ModuleValue,
    Option,
    Place,
    Symbol,
    Thing,
    Union,
    Value,
    either,
    join,
    options_of,
)
from tclint.source.syntax.tables import (
    Call,
    Expression,
    Function,
    Name,
    Return,
)

_DEEPEST = 24
"""The most nested calls that are followed."""
_DEEPEST_ELSEWHERE = 3
"""The most nested calls that are followed outside the linted files; other files are linted by themselves."""
_DEEPEST_IN_DICTS = 6
"""The most nested calls of one function that goes into the values of dicts."""
_MOST_EVENTS = 3_000
"""A function with this many events is not followed again from another entry point, so that a network's
builder is not run for each of its fifty variants."""
_PLAIN = frozenset({"call", "escape", "random", "clock"})
_MOST_PLAIN_RUNS_ALIKE = 2
"""The most runs, with the same arguments, of a function whose events are all plain, such as `is_available()`;
later calls return its last result."""
_MOST_PLAIN_RUNS = 12
"""The most runs of a function whose events are all plain; later calls return an unknown value."""
_MOST_RUNS_ON_KNOWN = 200
"""The same of a function that gets constants and names, or a dict whose keys are known, as of a
configuration."""
_MOST_RETURNS = 6
"""The most values that a function may return; more are one unknown value."""


def _is_plain(event: Event) -> bool:
    """Whether an event is of no interest to rules: it concerns neither tensors nor modules nor training."""
    if event.kind in ("wait", "enter"):
        return isinstance(event.subject, Thing) and event.subject.is_unknown
    if event.kind == "make":
        return isinstance(event.result, Thing) and not event.result.kind
    return event.kind in _PLAIN


def _is_settled(value: Value) -> bool:
    """Whether a value cannot change any more."""
    return all(
        not isinstance(option, Thing) or (option.is_unknown and not option.fields)
        for option, _ in options_of(value)
    )


def _is_answer(function: Function, given: Sequence[Value]) -> bool:
    """Whether a function returns something and gets what is the same wherever the program has it: constants,
    and what names stand for."""
    return (
        bool(given)
        and all(
            isinstance(option, Constant | Symbol | ClassValue | ModuleValue)
            for item in given
            for option, _ in options_of(item)
        )
        and any(isinstance(event, Return) for event in function.events)
    )


def _is_unknown(value: Value) -> bool:
    return isinstance(value, Thing) and value.is_unknown


class Functions(Modules):
    """Runs functions, and makes objects of classes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._plain_runs: dict[tuple[str, int], int] = {}
        """Function -> the number of its runs with plain events only."""
        self.remembering: set[tuple[str, int]] = set()
        """Functions under `functools.cache`, which run once for the same arguments."""
        self._results: dict[object, tuple[Value, int]] = {}
        """Function and arguments -> last result and number of such runs; kept for cached functions and for
        functions with plain events only."""
        self._spent: Counter[tuple[str, int]] = Counter()
        """Function -> events of its runs from earlier entry points."""
        self._spending: Counter[tuple[str, int]] = Counter()
        """Function -> events of its runs from the current entry point."""
        self.linted: frozenset[str] | None = None
        """Paths of the linted files if the program is a module of a package; None: calls are followed
        wherever they lead."""
        self._elsewhere = 0
        """The number of nested calls since the last function in a linted file."""

    # -- functions of the project

    def run_function(
        self,
        value: FunctionValue,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
        *,
        is_new: bool = False,
    ) -> Value:
        """Follow a call of a function of the project.

        Args:
            is_new: whether the call is not a recursion, although the function is already running.
        """
        function = value.function
        if function.qualified_name == self.watched:
            given = self.bound((), arguments, keywords)
            self.happen("enter", function.qualified_name, None, given, call).result = value
        if value.file.generates(function):
            generator = Thing("generator", function.name)
            generator.fields["function"] = value
            generator.fields["arguments"] = self.container("tuple", arguments)
            for key, item in keywords.items():
                generator.fields["item", key] = item
            return generator
        at = (value.file.path, function.index)
        busy = sum(place.function is function and place.file is value.file for place in self.stack) + (
            self.frame.function is function
        )
        # Summaries of libraries are short and always followed.
        is_spent = self.exhausted or self._spent[at] >= _MOST_EVENTS
        is_cut = is_spent and not value.file.is_library
        # Calls back into the linted files are followed, however many wrappers lie between.
        is_elsewhere = value.file.path not in (self.linted or ()) and not value.file.is_library
        is_far = is_elsewhere and self._elsewhere >= _DEEPEST_ELSEWHERE
        goes_into_dict = any(map(self._is_known_dict, arguments))
        is_new = is_new or (busy < _DEEPEST_IN_DICTS and goes_into_dict)
        if (busy > 1 and not is_new) or len(self.stack) >= _DEEPEST or is_far or is_cut:
            if is_cut and self.exhausted:
                self.cut(value)
            event = self.happen(
                "escape", function.qualified_name, None, self.bound((), arguments, keywords), call
            )
            event.result = value
            return self.unknown(function.name, event)
        is_remembering = at in self.remembering
        asked = (at, value.receiver, *arguments, *keywords.items())
        known, runs = self._results.get(asked, (None, 0))
        if known is not None and runs >= (1 if is_remembering else _MOST_PLAIN_RUNS_ALIKE):
            return known
        plain_runs = self._plain_runs.get(at, 0)
        if plain_runs >= _MOST_PLAIN_RUNS and (
            plain_runs >= _MOST_RUNS_ON_KNOWN
            or not (goes_into_dict or _is_answer(function, [*arguments, *keywords.values()]))
        ):
            return self.unknown(function.name)
        frame = self.enter_function(value, arguments, keywords)
        start = len(self.record.events)
        result = self.run_frame(frame, value, call)
        self._spending[at] += len(self.record.events) - start
        if not value.file.is_library and all(map(_is_plain, self.record.events[start:])):
            self._plain_runs[at] = self._plain_runs.get(at, 0) + 1
            is_remembering |= value.receiver is None and _is_settled(result)
            if all(_is_unknown(option) for option, _ in options_of(result)):
                result = self._for_each_text(value, arguments, keywords, call) or result
        if is_remembering:
            self._results[asked] = result, runs + 1
        return result

    def _for_each_text(
        self, value: FunctionValue, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value | None:
        """The result of a function that gives nothing known for an argument which is one of several texts,
        such as names of classes: it is asked for each of them. None if there is no such argument."""
        for key, item in (*enumerate(arguments), *keywords.items()):
            if isinstance(item, Union) and all(
                self.text_of(option) is not None for option, _ in item.options
            ):

                def ask(text: Value, key: object = key) -> Value:
                    positional = [text if at == key else other for at, other in enumerate(arguments)]
                    named = {name: text if name == key else other for name, other in keywords.items()}
                    return self.run_function(value, positional, named, call)

                return self.each(item, ask)
        return None

    def _is_known_dict(self, value: Value) -> bool:
        """Whether a value is a dict whose keys are known; a recursion into its values comes to an end."""
        return isinstance(value, Thing) and value.kind == "dict" and bool(self.exact_items(value))

    def cut(self, value: FunctionValue) -> None:
        """Record that a function is not followed because the budget is used up."""
        self.record.cut[value.file.path, value.function.qualified_name] = None

    def enter_function(
        self, value: FunctionValue, arguments: list[Value], keywords: dict[str, Value]
    ) -> Frame:
        """A frame for a function with its parameters bound to the arguments."""
        function = value.function
        frame = Frame(value.file, function, value.frame)
        frame.cls = value.owner
        positional = list(arguments)
        if value.receiver is not None:
            positional.insert(0, value.receiver)
            frame.receiver = value.receiver
        rest = dict(keywords)
        for item in arguments:
            if isinstance(item, Thing) and item.kind == "star":
                rest["*"] = item.fields["over"]
                positional.remove(item)
        names = frame.names
        counters = value.file.counters(function)
        for parameter in function.parameters:
            name = parameter.name
            if parameter.star == "*":
                more = rest.pop("*", None)
                if more is None or self.ordered(more) is not None:
                    names[name] = self.container("tuple", positional, is_exact=more is None)
                else:
                    names[name] = self.container("tuple", None, either(*positional, self.element(more)))
                positional = []
            elif parameter.star == "**":
                made = self.container("dict")
                for key, item in rest.items():
                    if key == "**":
                        self.update(made, item)
                    elif key != "*":
                        made.fields["item", key] = item
                names[name] = made
                rest = {}
            elif positional:
                names[name] = positional.pop(0)
            elif name in rest:
                names[name] = rest.pop(name)
            elif "**" in rest or "*" in rest:
                known = self.default_of(value, parameter.default)
                given = self._option_of(rest["**"], name) if "**" in rest else self.unknown(name)
                names[name] = given if known is None else either(known, given)
            elif parameter.default is not None:
                names[name] = self.default_of(value, parameter.default) or NONE
            else:
                names[name] = self.parameter(value, parameter.name, parameter.annotation)
            if name in counters and isinstance(names[name], Constant):
                names[name] = self.counter(names[name])
        return frame

    def _option_of(self, options: Value, name: str) -> Value:
        """The item of `**options` for a parameter; an unknown value with its name if the options are
        unknown."""
        if isinstance(options, Thing) and options.is_unknown:
            made = Thing("", name)
            made.fields.update({key: item for key, item in options.fields.items() if str(key)[:1] == "@"})
            return made
        return self.item(options, Constant(name))

    def counter(self, value: Value) -> Value:
        """A variable that the program adds to: its initial number becomes an unknown one, since loops change
        it."""
        if isinstance(value, Constant) and isinstance(value.value, int | float) and value.value is not True:
            return Thing("number")
        return value

    def default_of(self, value: FunctionValue, default: Expression | None) -> Value | None:
        """The default of a parameter, evaluated where the function is defined."""
        if default is None:
            return None
        before = self.frame
        self.frame = value.frame
        try:
            return self.evaluate(default)
        finally:
            self.frame = before

    def parameter(self, value: FunctionValue, name: str, annotation: Expression | None) -> Value:
        """The value of a parameter without an argument: of its annotated type, else unknown."""
        if annotation is not None:
            before = self.frame
            self.frame = value.frame
            try:
                declared = self.evaluate(annotation)
            finally:
                self.frame = before
            made = self.of_type(declared, name)
            if made is not None:
                return made
        return self.unknown(name)

    def undeclared(self, value: FunctionValue) -> dict[str, Value]:
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

    def of_type(self, declared: Value, name: str) -> Value | None:
        """An object of a declared type; None if the tables and the project do not know the type."""
        if isinstance(declared, Symbol):
            spec = self.library.call(declared.name)
            if spec is not None and spec.returns and spec.returns[0] not in "=":
                return Thing(spec.returns, declared.name) if spec.returns != "number" else None
        if isinstance(declared, ClassValue) and (declared.is_dataclass or self.kind_of_class(declared)):
            made = Thing(self.kind_of_class(declared), name, cls=declared)
            made.fields["@open"] = Constant(True)
            if made.kind == "dict":
                made.fields["[*]"] = self.unknown()
            if declared.is_dataclass:
                self.fill_dataclass(made, declared, [], {}, is_open=True)
            else:
                self._construct_unseen(made, declared)
            return made
        return None

    def _construct_unseen(self, made: Thing, declared: ClassValue) -> None:
        """Give an object that unseen code makes the parts that its constructor sets, whatever the arguments
        are."""
        constructor = declared.find("__init__")
        if isinstance(constructor, FunctionValue):
            bound = constructor.bound_to(made)
            self.run_function(bound, [], self.undeclared(bound), Call(Name(""), (), self.node_id))

    def run_frame(self, frame: Frame, value: FunctionValue, call: Call | None, on_yield: Any = None) -> Value:
        """Run a function in a frame that `enter_function` made."""
        outer, before, node_id = self.frame, self.stack, self.node_id
        loops, regions = self.loops, self.regions
        if call is not None and outer is not None:
            self.stack = (*before, Place(outer.file, outer.function, call.node_id))
        self.frame = frame
        self.node_id = value.function.node_id
        frame.caller = outer
        frame.depth = len(loops)
        for context in value.regions:
            self.enter_region(context)
        depth = len(self.path)
        path, most_events, elsewhere = self.path, self.most_events, self._elsewhere
        if self.linted is not None:
            self._elsewhere = 0 if value.file.path in self.linted else elsewhere + 1
        self.most_events = self.share()
        self.ran.add((value.file.path, value.function.index))
        try:
            ended = self.run_body(frame, on_yield)
        finally:
            self.most_events, self._elsewhere = most_events, elsewhere
            self.frame, self.stack, self.node_id = outer, before, node_id
            self.loops, self.regions, self.path = loops, regions, path
        returns = [Option(option.value, option.guard[depth:]) for option in frame.returns]
        if not returns:
            return NONE
        if not ended and len(returns) < _MOST_RETURNS:
            returns.append(Option(NONE, ()))
        return join(returns)

    # -- classes

    def instantiate(
        self, value: ClassValue, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        """Make an object of a class of the project."""
        kind = self.kind_of_class(value)
        made = Thing(kind, value.function.name, cls=value)
        event = self.happen(
            "make", value.function.qualified_name, None, self.bound((), arguments, keywords), call
        )
        event.result = made
        made.made = event
        if value.is_open:
            made.fields["@open"] = Constant(True)
        constructor = value.find("__init__")
        if isinstance(constructor, FunctionValue):
            if value.is_dataclass and constructor.file.is_library:
                keywords = self._with_defaults(value, constructor, len(arguments), keywords)
            self.run_function(constructor.bound_to(made), arguments, keywords, call)
        elif any(item.is_dataclass for item in value.lineage()):
            self.fill_dataclass(made, value, arguments, keywords)
        else:
            self.construct(made, arguments, keywords)
        wrapper = self.wrapper_of(made)
        if wrapper is not None and value.find("forward") is None:
            return self.call_value(wrapper, [made.fields["module"]], {}, call)
        return made

    def made_by_base(
        self, cls: ClassValue, name: str, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value | None:
        """The object of a class that a method of its library base makes, such as `from_pretrained`; None if
        the method makes none."""
        for base in cls.library_bases() if cls.find(name) is None else ():
            spec = self.library.call(self.library.canonical(f"{base.name}.{name}"))
            if spec is not None and spec.event == "make" and spec.returns == self.kind_of_class(cls):
                given = self.bound(spec.parameters, arguments, keywords)
                event = self.happen("make", cls.function.qualified_name, None, given, call)
                made = event.result = Thing(spec.returns, cls.function.name, event, cls)
                self._construct_unseen(made, cls)
                self.set_fields(spec.sets, made, given)
                return made
        return None

    def _with_defaults(
        self, value: ClassValue, constructor: FunctionValue, count: int, keywords: dict[str, Value]
    ) -> dict[str, Value]:
        """Keywords with the defaults that a project's dataclass declares anew for the parameters of the class
        of a library that it extends, after `count` positional arguments."""
        parameters = {item.name for item in constructor.function.parameters[1 + count :] if not item.star}
        given = dict(keywords)
        for name, default in self._declared(value):
            if default is not None and name in parameters and name not in keywords:
                other = self._option_of(keywords["**"], name) if "**" in keywords else None
                given[name] = default if other is None else either(default, other)
        return given

    def _declared(self, value: ClassValue) -> Iterator[tuple[str, Value | None]]:
        """The fields of a dataclass and of those that it extends, with their defaults where they have one."""
        from tclint.source.syntax.tables import Assignment

        for item in reversed(list(value.lineage())):
            for event in item.function.events:
                if not isinstance(event, Assignment) or event.operator or event.into is not None:
                    continue
                name = event.targets[0]
                default = item.namespace.get(name)
                if isinstance(default, Thing) and default.kind == "field":
                    default = default.fields.get("default", self.unknown(name))
                yield name, default

    def construct(self, made: Thing, arguments: list[Value], keywords: dict[str, Value]) -> None:
        """Apply the constructors of the library classes that the class of an object derives from."""
        if made.kind == "dict":
            self.fill_dict(made, arguments, keywords)
        for base in made.cls.library_bases() if made.cls is not None else ():
            spec = self.library.call(base.name)
            if spec is not None:
                given = self.bound(spec.parameters, arguments, keywords)
                if spec.holds:
                    self.hold(made, given)
                else:
                    for key, item in given.items():
                        made.fields.setdefault(key, item)

    def fill_dataclass(
        self,
        made: Thing,
        value: ClassValue,
        arguments: list[Value],
        keywords: dict[str, Value],
        *,
        is_open: bool = False,
    ) -> None:
        """Give an object of a dataclass its fields."""
        positional = list(arguments)
        for name, default in self._declared(value):
            if is_open:
                given: Value = self.unknown(name)
                made.fields[name] = either(default, given) if default is not None else given
            elif positional:
                made.fields[name] = positional.pop(0)
            elif name in keywords:
                made.fields[name] = keywords[name]
            elif "**" in keywords:
                given = self._option_of(keywords["**"], name)
                made.fields[name] = either(default, given) if default is not None else given
            else:
                made.fields[name] = default if default is not None else self.unknown(name)
        after = value.find("__post_init__")
        if isinstance(after, FunctionValue):
            self.run_function(after.bound_to(made), [], {}, Call(Name("__post_init__"), (), self.node_id))

    # -- provided elsewhere

    def set_fields(self, fields: Mapping[str, object] | None, target: Value, given: dict[str, Value]) -> None:
        raise NotImplementedError

    def run_body(self, frame: Frame, on_yield: Any) -> bool:
        raise NotImplementedError

    def enter_region(self, context: Value) -> None:
        raise NotImplementedError
