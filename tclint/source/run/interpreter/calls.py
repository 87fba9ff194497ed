"""Calls as they are written: what is called, with which arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tclint.source.run.conditions import exclude
from tclint.source.run.interpreter.library_calls import LibraryCalls
from tclint.source.run.values import (
    NONE,
    ClassValue,
    Constant,
    FunctionValue,
    Option,
    Symbol,
    Thing,
    Union,
    Value,
    either,
    join,
    options_of,
)
from tclint.source.syntax.tables import (
    Attribute,
    Call,
    Name,
)


class Calls(LibraryCalls):
    """Runs calls."""

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
                self.spread(value, keywords)
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

    def spread(self, value: Value, keywords: dict[str, Value]) -> None:
        """Add the keywords of `**options`: the items of a known dict, or of one of several, else '**' for any
        keyword."""
        dicts = [
            (option, guard, [key[1] for key in option.fields if isinstance(key, tuple)])
            for option, guard in options_of(value)
            if isinstance(option, Thing) and option.kind == "dict"
        ]
        if len(dicts) < len(options_of(value)):
            keywords["**"] = value
            return
        for key in dict.fromkeys(key for *_, keys in dicts for key in keys if isinstance(key, str)):
            given = [
                Option(option.fields["item", key] if key in keys else self.unknown(key), guard)
                for option, guard, keys in dicts
            ]
            keywords.setdefault(key, join(given))
        if any("[*]" in option.fields for option, *_ in dicts):
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
        if isinstance(receiver, ClassValue):
            made = self.made_by_base(receiver, name, arguments, keywords, call)
            if made is not None:
                return made
        if not isinstance(receiver, Thing):
            return self.call_value(self.attribute(receiver, name), arguments, keywords, call)
        own = receiver.fields.get(name)
        is_own = receiver.cls is not None or not receiver.kind
        if own is not None and (is_own or not (isinstance(own, Thing) and own.is_unknown)):
            return self.call_value(self.refine(own), arguments, keywords, call)
        return self._call_inherited(receiver, name, arguments, keywords, call)

    def _call_inherited(
        self, receiver: Thing, name: str, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        """Call a method that a thing has of its class or kind, whatever the program has since put in its
        place."""
        if receiver.kind == "module" and name == "forward":
            return self.call_thing(receiver, arguments, keywords, call)
        if receiver.cls is not None:
            inherited = receiver.cls.find(name)
            if inherited is not None:
                return self._call_own(inherited, receiver, name, arguments, keywords, call)
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
            if self.library.method("module", name) is None:
                return self.tensor("op", f".{name}", receiver, self.bound((), arguments, keywords), call)
            # No tensor has such a method: what looked like a part of the data is a module.
            receiver.kind = ""
            return self.call_method(receiver, name, arguments, keywords, call)
        if receiver.cls is not None and not receiver.cls.is_derived:
            # The class has no such method, so the callable is an attribute of the object.
            return self.call_value(self.attribute(receiver, name), arguments, keywords, call)
        given = self.bound((), arguments, keywords)
        self._may_call(given)
        event = self.happen("call", f".{name}", receiver, given, call)
        return self._result_of_unknown(receiver, name, arguments, keywords, event)

    def _call_own(
        self,
        method: Value,
        receiver: Thing,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value],
        call: Call,
    ) -> Value:
        """Call a method that a class of the project defines, which may override one of a library."""
        start = len(self.record.events)
        result = self.call_value(self.bind(method, receiver), arguments, keywords, call)
        spec = self.spec_of(receiver, name) if receiver.kind else None
        if (
            spec is not None
            and spec.overridden
            and not any(event.kind == spec.event for event in self.record.events[start:])
        ):
            given = self.bound(spec.parameters, arguments, keywords)
            self.happen(spec.event, f".{name}", receiver, given, call).result = result
        return result

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
        if len(arguments) == 1 and thing.kind and self.library.is_a(thing.kind, "context"):
            function = arguments[0]
            if isinstance(function, FunctionValue):
                return function.within(thing)
        if thing.operation is not None and thing.operation[0] == ".":
            # `step = optimizer.step; step()`. A wrapper may have replaced the method since it was read.
            owner, attribute = thing.operation[1]
            if isinstance(owner, Thing) and owner.kind and isinstance(attribute, Constant):
                return self._call_inherited(owner, str(attribute.value), arguments, keywords, call)
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

    # -- arguments

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
