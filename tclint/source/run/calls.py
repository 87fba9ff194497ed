"""Calls: the interpreter follows those of the project's functions and classes; tables describe libraries'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tclint.source.run.conditions import exclude
from tclint.source.run.files import File
from tclint.source.run.library import Program, Spec
from tclint.source.run.modules import Modules
from tclint.source.run.values import (
    NEVER,
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
    duplicate,
    either,
    join,
    modules_in,
    options_of,
)
from tclint.source.syntax.tables import (
    Attribute,
    Call,
    Expression,
    Function,
    Name,
)

_DEEPEST = 24
"""The most nested calls that are followed."""
_DEEPEST_ELSEWHERE = 3
"""The most nested calls that are followed outside the linted files; other files are linted by themselves."""
_MOST_EVENTS = 3_000
"""A function with this many events is not followed again from another entry point, so that a network's
builder is not run for each of its fifty variants."""
_PLAIN = frozenset({"call", "escape", "random", "clock"})
_MOST_PLAIN_RUNS_ALIKE = 2
"""The most runs, with the same arguments, of a function whose events are all plain, such as `is_available()`;
later calls return its last result."""
_MOST_PLAIN_RUNS = 12
"""The most runs of a function whose events are all plain; later calls return an unknown value."""


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


class Calls(Modules):
    """Runs calls."""

    # -- a call as written

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

    def _call(self, expression: Call) -> Value:
        found = self.frame.results.get(expression.node_id)
        if found is not None:
            return found
        return self.run_call(expression)

    def run_call(self, call: Call) -> Value:
        """Run a call and return its result."""
        self.node_id = call.node_id
        arguments: list[Value] = []
        keywords: dict[str, Value] = {}
        for argument in call.arguments:
            value = self.evaluate(argument.value)
            if argument.star == "*":
                known = self.ordered(value)
                if known is None:
                    star = Thing("star")
                    star.fields["over"] = value
                    arguments.append(star)
                else:
                    arguments.extend(known)
                    if self.exact_items(value) is None:
                        keywords["*"] = value
            elif argument.star == "**":
                self._spread(value, keywords)
            elif argument.keyword:
                keywords[argument.keyword] = value
            else:
                arguments.append(value)
        function = call.function
        if isinstance(function, Attribute):
            receiver: Value | None = self.evaluate(function.value)
            method = function.name
        elif isinstance(function, Name) and "." in function.dotted:
            head, _, method = function.dotted.rpartition(".")
            receiver = self.evaluate(Name(head))
        else:
            receiver, method = None, ""
        self.node_id = call.node_id
        if receiver is None:
            result = self.call_value(self.evaluate(function), arguments, keywords, call)
        else:
            result = self.call_method(receiver, method, arguments, keywords, call)
        self.frame.results[call.node_id] = result
        return result

    def _spread(self, value: Value, keywords: dict[str, Value]) -> None:
        """Add the keywords of `**options`: the items of a known dict, else '**' for any keyword."""
        if isinstance(value, Thing) and value.kind == "dict":
            for key, item in value.fields.items():
                if isinstance(key, tuple) and isinstance(key[1], str):
                    keywords.setdefault(key[1], item)
            if "[*]" in value.fields:
                keywords["**"] = value
        else:
            keywords["**"] = value

    # -- what is called

    def call_value(
        self,
        value: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call | None = None,
    ) -> Value:
        """Call a value."""
        call = call or Call(Name(""), (), self.node_id)
        match value:
            case FunctionValue():
                return self.run_function(value, arguments, keywords, call)
            case ClassValue():
                return self.instantiate(value, arguments, keywords, call)
            case Symbol():
                return self.call_symbol(value.name, arguments, keywords, call)
            case Union():
                known = self._callable_options(value)
                result = self.each(
                    join(known) if known else value,
                    lambda inner: self.call_value(inner, arguments, keywords, call),
                )
                others = [
                    option.value
                    for option in value.options
                    if isinstance(option.value, Thing) and option not in known
                ]
                for made, _ in options_of(result) if others else ():
                    if isinstance(made, Thing):
                        # An unknown callable among the options may have made it instead.
                        made.fields["@guessed"] = either(*others)
                return result
            case Thing():
                return self.call_thing(value, arguments, keywords, call)
        return self.unknown()

    def _is_text_by_default(self, value: Union) -> bool:
        """Whether a value is a string that something outside the program can replace."""
        return any(self.text_of(option) is not None for option, _ in value.options) and all(
            self.text_of(option) is not None or (isinstance(option, Thing) and "@chosen by" in option.fields)
            for option, _ in value.options
        )

    def _callable_options(self, value: Union) -> list[Option]:
        """The options that can be called; unknown ones are left out if there are known ones."""
        possible = [
            option
            for option in value.options
            if not isinstance(option.value, Constant) and not exclude(option.guard, self.path)
        ]
        known = [
            option
            for option in possible
            if not (isinstance(option.value, Thing) and option.value.is_unknown and option.value.made is None)
        ]
        return known or possible

    def call_method(
        self,
        receiver: Value,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
    ) -> Value:
        """Call a method of a value."""
        if isinstance(receiver, Union):
            known = self._callable_options(receiver)
            if not known or self._is_text_by_default(receiver):
                return self.call_constant(receiver, name, arguments, keywords, call)
            if len(known) == 1:
                return self.call_method(known[0].value, name, arguments, keywords, call)
            if self.library.method("tensor", name) is None and all(
                isinstance(option.value, Thing) and option.value.kind == "tensor" for option in known
            ):
                return self.tensor("op", f".{name}", receiver, self.bound((), arguments, keywords), call)
            return self.each(
                Union(tuple(known)),
                lambda inner: self.call_method(inner, name, arguments, keywords, call),
            )
        if isinstance(receiver, Symbol):
            return self.call_value(self.symbol(f"{receiver.name}.{name}"), arguments, keywords, call)
        if isinstance(receiver, Constant):
            return self.call_constant(receiver, name, arguments, keywords, call)
        if not isinstance(receiver, Thing):
            return self.call_value(self.attribute(receiver, name), arguments, keywords, call)
        own = receiver.fields.get(name)
        is_own = receiver.cls is not None or not receiver.kind
        if own is not None and (is_own or not (isinstance(own, Thing) and own.is_unknown)):
            return self.call_value(self.refine(own), arguments, keywords, call)
        if receiver.cls is not None:
            inherited = receiver.cls.find(name)
            if inherited is not None:
                return self.call_value(self.bind(inherited, receiver), arguments, keywords, call)
        if receiver.kind == "super":
            return self.call_super(receiver, name, arguments, keywords, call)
        native = self.native_method(receiver, name)
        if native is not None:
            return native(receiver, arguments, keywords, call)
        if name == "__next__" and receiver.kind:
            return self.element(receiver)
        if receiver.kind == "dict" and ("item", name) in receiver.fields:
            return self.call_value(self.item(receiver, Constant(name)), arguments, keywords, call)
        spec = self.spec_of(receiver, name)
        if spec is not None:
            return self.call_spec(spec, f".{name}", receiver, arguments, keywords, call)
        if receiver.kind == "tensor":
            return self.tensor("op", f".{name}", receiver, self.bound((), arguments, keywords), call)
        if receiver.cls is not None and not receiver.cls.is_derived:
            # The class has no such method, so the callable is an attribute of the object.
            return self.call_value(self.attribute(receiver, name), arguments, keywords, call)
        given = self.bound((), arguments, keywords)
        self._may_call(given)
        event = self.happen("call", f".{name}", receiver, given, call)
        return self._result_of_unknown(receiver, name, arguments, keywords, event)

    def _result_of_unknown(
        self, receiver: Thing, name: str, arguments: list[Value], keywords: dict[str, Value], event: Any
    ) -> Value:
        """The result of an unknown method. Without arguments it is the same each time, as a test of it has to
        be."""
        if not arguments and not keywords:
            result = self.operate("()", (receiver, Constant(name)), name)
            if result.made is None:
                result.made = event
        else:
            result = self.unknown(name, event)
        event.result = result
        return result

    def call_thing(
        self, thing: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        """Call an object."""
        if thing.cls is not None:
            forward = "forward" if thing.kind == "module" else "__call__"
            method = thing.cls.find(forward) or thing.cls.find("__call__")
            if method is not None:
                return self.forward(thing, method, arguments, keywords, call)
        if thing.kind == "partial" and "0" in thing.fields:
            # `functools.partial(function, first, key=value)` has its arguments by position and by keyword.
            given = [item for key, item in thing.fields.items() if str(key).isdigit()]
            more = {key: item for key, item in thing.fields.items() if not str(key).isdigit()}
            return self.call_value(given[0], [*given[1:], *arguments], {**more, **keywords}, call)
        if thing.kind == "contextmanager":
            made = Thing("managed", made=None)
            made.fields["function"] = thing.fields["function"]
            made.fields["arguments"] = self.container("tuple", arguments)
            for key, item in keywords.items():
                made.fields["item", key] = item
            return made
        if thing.operation is not None and thing.operation[0] == ".":
            # `step = optimizer.step; step()`.
            owner, attribute = thing.operation[1]
            if isinstance(owner, Thing) and owner.kind and isinstance(attribute, Constant):
                return self.call_method(owner, str(attribute.value), arguments, keywords, call)
        around = thing.fields.get("@autocast")
        if around is not None:
            # A framework runs the forward of this module under autocast.
            regions = self.regions
            self.enter_region(around)
            try:
                return self._call_plain(thing, arguments, keywords, call)
            finally:
                self.regions = regions
        return self._call_plain(thing, arguments, keywords, call)

    def _call_plain(
        self, thing: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        spec = self.spec_of(thing, "()") if thing.kind else None
        if spec is not None and spec.runs == "items":
            return self._run_forward(
                thing,
                lambda: self.run_items(thing, arguments[0] if arguments else NONE),
                arguments,
                keywords,
                call,
            )
        if spec is not None:
            return self.call_spec(spec, thing.name or thing.kind, thing, arguments, keywords, call)
        given = self.bound((), arguments, keywords)
        self._may_call(given)
        event = self.happen("call", thing.name, thing, given, call)
        if not given:
            return self._result_of_unknown(thing, "", arguments, keywords, event)
        # An unknown callable that gets tensors most likely returns one.
        is_tensor = any(True for item in given.values() for _ in self.tensors_in(item))
        event.result = Thing("tensor" if is_tensor else "", "", event)
        return event.result

    def forward(
        self, thing: Thing, method: Value, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        """Call an object of a class of the project; a call of a module runs its forward."""
        bound = self.bind(method, thing)
        if thing.kind != "module":
            return self.call_value(bound, arguments, keywords, call)
        around = thing.fields.get("@autocast")
        regions = self.regions
        if around is not None:
            self.enter_region(around)
        try:
            return self._run_forward(
                thing, lambda: self._follow(bound, arguments, keywords, call), arguments, keywords, call
            )
        finally:
            self.regions = regions

    def _run_forward(
        self,
        thing: Thing,
        run: Callable[[], Value],
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
    ) -> Value:
        event = self.happen("forward", thing.name, thing, self.bound((), arguments, keywords), call)
        outer, self.inside = self.inside, event
        try:
            result = run()
        finally:
            self.inside = outer
        event.result = result
        if isinstance(result, Thing) and result.is_unknown and result.made is None:
            # The forward was not followed or returned something unknown; a tensor is the best guess.
            event.result = result = Thing("tensor", "", event)
        return result

    def _follow(self, method: Value, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        """Follow a module's own forward. A module inside another of the same class is not a recursion."""
        if self.watched:  # what is looked for makes modules, and nothing that a forward does is
            return Thing()
        if not isinstance(method, FunctionValue):
            return self.call_value(method, arguments, keywords, call)
        outer = self.inside.inside if self.inside is not None else None
        while outer is not None and outer.subject is not method.receiver:
            outer = outer.inside
        return self.run_function(method, arguments, keywords, call, is_new=outer is None)

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
        if self._plain_runs.get(at, 0) >= _MOST_PLAIN_RUNS:
            return self.unknown(function.name)
        frame = self.enter_function(value, arguments, keywords)
        start = len(self.record.events)
        result = self.run_frame(frame, value, call)
        self._spending[at] += len(self.record.events) - start
        if not value.file.is_library and all(map(_is_plain, self.record.events[start:])):
            self._plain_runs[at] = self._plain_runs.get(at, 0) + 1
            is_remembering |= value.receiver is None and _is_settled(result)
        if is_remembering:
            self._results[asked] = result, runs + 1
        return result

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

    def of_type(self, declared: Value, name: str) -> Value | None:
        """An object of a declared type; None if the tables and the project do not know the type."""
        if isinstance(declared, Symbol):
            spec = self.library.call(declared.name)
            if spec is not None and spec.returns and spec.returns[0] not in "=":
                return Thing(spec.returns, declared.name) if spec.returns != "number" else None
        if isinstance(declared, ClassValue) and (declared.is_dataclass or self.kind_of_class(declared)):
            made = Thing(self.kind_of_class(declared), name, cls=declared)
            made.fields["@open"] = Constant(True)
            if declared.is_dataclass:
                self.fill_dataclass(made, declared, [], {}, is_open=True)
            return made
        return None

    def run_frame(self, frame: Frame, value: FunctionValue, call: Call | None, on_yield: Any = None) -> Value:
        """Run a function in a frame that `enter_function` made."""
        outer, before, node_id = self.frame, self.stack, self.node_id
        loops, regions = self.loops, self.regions
        if call is not None and outer is not None:
            self.stack = (*before, Place(outer.file, outer.function, call.node_id))
        self.frame = frame
        frame.depth = len(loops)
        for context in value.regions:
            self.node_id = value.function.node_id
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
        if not ended and len(returns) < MOST_RETURNS:
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
            self.run_function(constructor.bound_to(made), arguments, keywords, call)
        elif any(item.is_dataclass for item in value.lineage()):
            self.fill_dataclass(made, value, arguments, keywords)
        else:
            self.construct(made, arguments, keywords)
        return made

    def construct(self, made: Thing, arguments: list[Value], keywords: dict[str, Value]) -> None:
        """Apply the constructors of the library classes that the class of an object derives from."""
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
        from tclint.source.syntax.tables import Assignment

        positional = list(arguments)
        for item in reversed(list(value.lineage())):
            for event in item.function.events:
                if not isinstance(event, Assignment) or event.operator or event.into is not None:
                    continue
                name = event.targets[0]
                default = item.namespace.get(name)
                if isinstance(default, Thing) and default.kind == "field":
                    default = default.fields.get("default", self.unknown(name))
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

    # -- libraries

    def bound(
        self, parameters: tuple[str, ...], arguments: list[Value], keywords: dict[str, Value]
    ) -> dict[str, Value]:
        """Arguments by parameter name, or by position if no parameter is known for them."""
        found: dict[str, Value] = {}
        for position, value in enumerate(arguments):
            if parameters and isinstance(value, Thing) and value.kind == "star":
                # It is unknown which parameters `*values` fills.
                found["*"] = value
                break
            found[parameters[position] if position < len(parameters) else str(position)] = value
        for key, value in keywords.items():
            found.setdefault(key, value)
        return found

    def call_symbol(self, name: str, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        """Call a library's function or class."""
        if name.startswith("builtins."):
            native = self.builtin(name[9:])
            if native is not None:
                return native(arguments, keywords, call)
        if name.startswith("tclint.summary."):
            return self.summarised(name[15:], arguments)
        spec = self.library.call(name)
        if spec is not None:
            return self.call_spec(spec, name, None, arguments, keywords, call)
        given = self.bound((), arguments, keywords)
        # What gets parameters of modules is an optimizer or the like.
        tensors = [tensor for item in given.values() for tensor in self.tensors_in(item)]
        is_tensor = bool(tensors) and not any("@parameter of" in tensor.fields for tensor in tensors)
        self._may_call(given)
        event = self.happen("call", name, None, given, call)
        if not given:
            found = self.operate("()", (Symbol(name),), name)
            found.made = found.made or event
            event.result = found
            return found
        event.result = Thing("tensor" if is_tensor else "", name, event)
        return event.result

    def call_spec(
        self,
        spec: Spec,
        name: str,
        receiver: Thing | None,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
    ) -> Value:
        """Call a function or method that a table describes."""
        if spec.place or spec.cast:
            return self._placed(spec, name, receiver, arguments, keywords, call)
        given = self.bound(spec.parameters, arguments, keywords)
        if spec.event == "wrap" and "module" in given:
            for option, _ in options_of(given["module"]):
                if isinstance(option, Thing) and option.is_unknown:
                    option.kind = "module"  # nothing else can be wrapped
        read = self._waited(spec.waits, name, receiver, given, call) if spec.waits else None
        returns = spec.returns
        if returns == "tensor" or (returns == "op" and self._computes(name, receiver, given)):
            made = self.tensor(spec.event or "op", name, receiver, given, call)
            for key in ("device", "dtype"):
                if key in given:
                    made.fields[f"@{key}"] = given[key]
            return made
        if spec.runs:
            self._run_given(spec.runs, given, call)
        event = read if read is not None and not spec.event else None
        event = event or self.happen(spec.event or "call", name, receiver, given, call)
        if spec.region:
            self.enter_region(
                receiver if spec.region == "self" and receiver is not None else given[spec.region]
            )
        result = self._returned(spec, name, receiver, given, event)
        event.result = result
        if spec.sets:
            defaults: dict[str, Value] = {key: Constant(value) for key, value in spec.defaults.items()}
            self._set(spec.sets, receiver or result, {**defaults, **given})
        return result

    def _waited(
        self, waits: str, name: str, receiver: Thing | None, given: dict[str, Value], call: Call
    ) -> Event | None:
        """The first wait for a value that a call reads: its object, one of its arguments, or ('*') all of
        them."""
        if waits == "*":
            values = list(given.values())
        else:
            values = [
                item for item in [receiver if waits == "self" else given.get(waits)] if item is not None
            ]
        waited = [event for item in values for event in self.wait(name, item, call)]
        return waited[0] if waited else None

    def _set(self, fields: Mapping[str, object], target: Value, given: dict[str, Value]) -> None:
        """Set fields of a call's object or result, each to a constant or to one of the arguments."""
        for key, value in fields.items():
            chosen: Value | None = Constant(value)
            if isinstance(value, str) and value[:1] == "=":
                chosen = next((given[name] for name in value[1:].split(",") if name in given), None)
            if chosen is None:
                continue
            for thing in (option for option, _ in options_of(target) if isinstance(option, Thing)):
                for part in modules_in(thing) if thing.kind == "module" and key[0] == "@" else (thing,):
                    self.store.write(part.fields, key, chosen)

    def _computes(self, name: str, receiver: Thing | None, given: dict[str, Value]) -> bool:
        """Whether an operation returns a tensor: torch's functions do, others if they get a tensor."""
        if receiver is None and name.startswith("torch."):
            return not name.startswith("torch.nn.utils.")
        if receiver is not None and receiver.kind == "tensor":
            return True
        return any(True for item in given.values() for _ in self.tensors_in(item))

    def _returned(
        self, spec: Spec, name: str, receiver: Thing | None, given: dict[str, Value], event: Any
    ) -> Value:
        returns = spec.returns
        if not returns or returns == "op":
            is_tensor = returns == "op" and self._computes(name, receiver, given)
            return Thing("tensor" if is_tensor else "", name, event)
        if returns in ("none", "never"):
            return NONE if returns == "none" else NEVER
        if returns == "self":
            return receiver or NONE
        if returns.startswith("outside "):
            return self.chosen_outside(Constant(returns[8:]))
        if returns == "device":
            return self.device(next(iter(given.values()), self.unknown()))
        if returns.startswith("="):
            names = returns[1:].split(",")
            found = [given[item] for item in names if item in given]
            if len(names) > 1:
                return self.container("tuple", found)
            if names[0] == "*":
                held = [item for key, item in given.items() if key.isdigit()]
                return held[0] if len(held) == 1 else self.container("tuple", held)
            if found and spec.event == "duplicate":
                return duplicate(found[0], event)
            return found[0] if found else self.unknown(name, event)
        if returns.startswith("isinstance "):
            return self.is_instance(next(iter(given.values()), NONE), Symbol(returns[11:]))
        if returns.startswith("each "):
            source = given.get(returns[5:])
            return self.element(source) if source is not None else self.unknown(name, event)
        if returns.startswith("("):
            return self._several(returns, event)
        kind, _, over = returns.partition(" of ")
        made = Thing(kind, name, event)
        if spec.holds:
            self.hold(made, given)
            return made
        made.fields.update(given)
        if over == "self" and receiver is not None:
            made.fields["over"] = receiver
        elif over and over in given:
            made.fields["over"] = given[over]
        return made

    def _several(self, returns: str, event: Event) -> Value:
        """A nested tuple of things as a table writes it: `(tensor, (tensor, tensor))`."""
        open_: list[list[Value]] = [[]]
        for word in returns.replace("(", " ( ").replace(")", " ) ").replace(",", " ").split():
            if word == "(":
                open_.append([])
            elif word == ")":
                open_[-2].append(self.container("tuple", open_.pop()))
            else:
                open_[-1].append(Thing(word, "", event))
        return open_[0][0]

    def _placed(
        self,
        spec: Spec,
        name: str,
        receiver: Thing | None,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
    ) -> Value:
        """Call `to`, `cuda`, `half`, `type`, ... of a tensor or a module."""
        assert receiver is not None
        given = (
            self.placing(arguments, keywords)
            if spec.place in ("argument", "cuda") or spec.cast == "argument"
            else {}
        )
        if spec.place and spec.place != "argument":
            given["device"] = Constant(spec.place)
            if arguments and isinstance(arguments[-1], Constant) and isinstance(arguments[-1].value, bool):
                given["non_blocking"] = arguments[-1]
            if "non_blocking" in keywords:
                given["non_blocking"] = keywords["non_blocking"]
        if spec.cast and spec.cast != "argument":
            given["dtype"] = Symbol(spec.cast)
        if receiver.kind in ("tensor", "") and given.get("device") == Constant("cpu"):
            self.wait(name, receiver, call)
        return self.place(receiver, name, given, call)

    def _run_given(self, runs: str, given: dict[str, Value], call: Call) -> None:
        """Run a function that the program passes to a library, which calls it:
        `mp.spawn(main, args=(...))`."""
        which, _, rest = runs.partition("(")
        function = given.get(which)
        if function is None:
            return
        passed: list[Value] = []
        for item in (part.strip() for part in rest.rstrip(")").split(",")):
            if item.startswith("*"):
                passed.extend(self.exact_items(given[item[1:]]) or [] if item[1:] in given else [])
            elif item:
                passed.append(given.get(item) or self.chosen_outside(Constant(item)))
        for option, _ in options_of(function):
            if isinstance(option, FunctionValue):
                self.run_function(option, passed, {}, call)

    def _may_call(self, given: dict[str, Value]) -> None:
        """Run the closures and bound methods among the arguments of unknown code, which may call them."""
        for item in given.values():
            for option, _ in options_of(item):
                if not isinstance(option, FunctionValue):
                    continue
                function, is_bound = option.function, option.receiver is not None
                if (option.file.path, function.index) in self.ran or not (is_bound or function.parent):
                    continue
                passed = {
                    parameter.name: self.parameter(option, parameter.name, parameter.annotation)
                    for parameter in function.parameters[1 if is_bound else 0 :]
                    if not parameter.star and parameter.default is None
                }
                self.run_function(option, [], passed, Call(Name(function.name), (), self.node_id))

    # -- provided by the part that runs statements

    def run_body(self, frame: Frame, on_yield: Any) -> bool:
        raise NotImplementedError

    def enter_region(self, context: Value) -> None:
        raise NotImplementedError

    def summary(self, program: Program) -> File:
        raise NotImplementedError

    def function_named(self, value: Value, name: str) -> FunctionValue | None:
        """A method of an object of the project."""
        if isinstance(value, Thing) and value.cls is not None:
            found = value.cls.find(name)
            bound = self.bind(found, value) if found is not None else None
            return bound if isinstance(bound, FunctionValue) else None
        return None


MOST_RETURNS = 6

__all__ = ["Calls", "Function", "ModuleValue"]
