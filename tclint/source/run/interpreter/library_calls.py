"""Calls of libraries, which the tables describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tclint.source.run.files import File
from tclint.source.run.interpreter.functions import Functions
from tclint.source.run.library import Program, Spec
from tclint.source.run.values import (
    NEVER,
    NONE,
    ClassValue,
    Constant,
    Event,
    FunctionValue,
    Symbol,
    Thing,
    Value,
    constants_of,
    duplicate,
    either,
    modules_in,
    options_of,
)
from tclint.source.syntax.tables import (
    Call,
    Name,
)


class LibraryCalls(Functions):
    """Does what the tables say of a call."""

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
        text = self.text_function(name, arguments)
        if text is not None:
            return text
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
        made = event.result = Thing("tensor" if is_tensor else "", name, event)
        for key, item in {} if is_tensor else given.items():
            if any(isinstance(option, Thing) and option.kind == "module" for option, _ in options_of(item)):
                # What is made from modules holds them, most likely under the names of the parameters.
                made.fields[("item", key) if key.isdigit() else key] = item
        return made

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
        if spec.registry and (registered := self._registered(spec, given)) is not None:
            named = spec.parameters[0]
            return self.call_value(
                registered, [], {key: value for key, value in given.items() if key != named}, call
            )
        if spec.event == "wrap" and "module" in given:
            for option, _ in options_of(given["module"]):
                if isinstance(option, Thing) and option.is_unknown:
                    option.kind = "module"  # nothing else can be wrapped
        waits = spec.waits and not self._leaves_out(spec.unless, receiver, given)
        read = self._waited(spec, name, receiver, given, call) if waits else None
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
            self.set_fields(spec.sets, receiver or result, {**defaults, **given})
        return result

    def _registered(self, spec: Spec, given: dict[str, Value]) -> Value | None:
        """What the project has registered under the name that a call gets; None if it has not."""
        named = given.get(spec.parameters[0])
        found = self.item(self.symbol(f"{spec.registry}.entries"), named) if named is not None else NONE
        known = [option for option, _ in options_of(found) if isinstance(option, FunctionValue | ClassValue)]
        return either(*known) if known else None

    def _leaves_out(self, unless: str, receiver: Thing | None, given: dict[str, Value]) -> bool:
        """Whether a call gets the argument, or the argument's value, with which it waits for nothing; the
        call that made its object may have got it."""
        name, _, wanted = unless.partition("=")
        found = given.get(name) or (receiver.fields.get(name) if receiver is not None else None)
        values = constants_of(found) if found is not None else ()
        return found is not None and (not wanted or values is None or wanted in map(repr, values))

    def _waited(
        self, spec: Spec, name: str, receiver: Thing | None, given: dict[str, Value], call: Call
    ) -> Event | None:
        """The first wait for a value that a call reads: its object, one of its arguments, or ('*') all of
        them."""
        if spec.waits == "*":
            values = list(given.values())
        else:
            waited_for = receiver if spec.waits == "self" else given.get(spec.waits)
            values = [waited_for] if waited_for is not None else []
        waited = [event for item in values for event in self.wait(name, item, call)]
        for event in waited:
            event.unless = spec.unless
        return waited[0] if waited else None

    def set_fields(self, fields: Mapping[str, object] | None, target: Value, given: dict[str, Value]) -> None:
        """Set fields of a call's object or result, each to a constant or to one of the arguments."""
        for key, value in (fields or {}).items():
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
        named: dict[str, Value] = {}
        for item in (part.strip() for part in rest.rstrip(")").split(",")):
            if item.startswith("**"):
                if item[2:] in given:
                    self.spread(given[item[2:]], named)
            elif item.startswith("*"):
                passed.extend(self.exact_items(given[item[1:]]) or [] if item[1:] in given else [])
            elif item:
                passed.append(given.get(item) or self.chosen_outside(Constant(item)))
        for option, _ in options_of(function):
            if isinstance(option, FunctionValue):
                self.run_function(option, passed, named, call)

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

    def spread(self, value: Value, keywords: dict[str, Value]) -> None:
        raise NotImplementedError

    def summary(self, program: Program) -> File:
        raise NotImplementedError
