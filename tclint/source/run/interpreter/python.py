"""Python's own functions, iteration and `super()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tclint.source.run.conditions import truth
from tclint.source.run.files import File
from tclint.source.run.interpreter.methods import Methods
from tclint.source.run.library import Spec
from tclint.source.run.values import (
    FALSE,
    NONE,
    TRUE,
    ClassValue,
    Constant,
    FunctionValue,
    ModuleValue,
    Option,
    Symbol,
    Thing,
    Union,
    Value,
    either,
    join,
    options_of,
    root_of,
)
from tclint.source.syntax.tables import Call, Expression, Name

Builtin = Callable[[list[Value], dict[str, Value], Call], Value]


def _is_setting(value: Value) -> bool:
    return isinstance(value, Constant) or (isinstance(value, Thing) and "@chosen by" in value.fields)


class Python(Methods):
    """What a program does with Python alone."""

    def builtin(self, name: str) -> Builtin | None:
        found: Builtin | None = getattr(self, f"_builtin_{name}", None)
        return found

    # -- questions

    def _builtin_isinstance(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if len(arguments) < 2:
            return self.unknown()
        return self.is_instance(arguments[0], arguments[1])

    def is_instance(self, value: Value, wanted: Value) -> Value:
        """`isinstance(value, wanted)`."""
        classes = self.exact_items(wanted) or [wanted]
        known = {self._is_of(option, item) for option, _ in options_of(value) for item in classes}
        if known == {False}:
            return FALSE
        if True in known and not isinstance(value, Union):
            return TRUE
        return self.operate("isinstance", (value, wanted))

    def _builtin_issubclass(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if len(arguments) < 2:
            return self.unknown()
        classes = self.exact_items(arguments[1]) or [arguments[1]]
        known = {self._derives_from(arguments[0], item) for item in classes}
        if True in known:
            return TRUE
        return FALSE if known == {False} else self.operate("issubclass", tuple(arguments[:2]))

    def _derives_from(self, value: Value, wanted: Value) -> bool | None:
        if isinstance(value, FunctionValue | ModuleValue | Constant):
            return False
        if not isinstance(value, ClassValue):
            return None
        if isinstance(wanted, ClassValue):
            return wanted in value.lineage() or (None if value.is_open else False)
        if isinstance(wanted, Symbol):
            if wanted.name == "torch.nn.Module" and self.kind_of_class(value) == "module":
                return True
            return wanted in value.library_bases() or (None if value.is_derived else False)
        return None

    def _is_of(self, value: Value, wanted: Value) -> bool | None:
        if isinstance(wanted, ClassValue):
            if isinstance(value, Thing) and value.cls is not None:
                return wanted in value.cls.lineage() or (None if value.cls.is_open else False)
            return False if isinstance(value, Constant | Symbol | FunctionValue) else None
        if isinstance(wanted, Symbol):
            last = wanted.name.rpartition(".")[2]
            if isinstance(value, FunctionValue | ClassValue | ModuleValue):
                return False if wanted.name.startswith("builtins.") else None
            if isinstance(value, Constant):
                return type(value.value).__name__ == last
            if isinstance(value, Thing):
                if value.kind == "tensor":
                    return wanted.name in ("torch.Tensor",) or None
                if value.kind in ("list", "tuple", "dict", "set"):
                    return value.kind == last
                if value.operation is not None and value.operation[0] == "slice":
                    return last == "slice"
                if value.kind and value.kind != "number" and wanted.name.startswith("builtins."):
                    return False
                if value.kind == "module":
                    if "@part of" in value.fields:
                        return None
                    if wanted.name == "torch.nn.Module":
                        return True
                    return value.name == wanted.name if value.cls is None else None
                if value.cls is None and value.made is not None and value.name == wanted.name:
                    return True  # calling this class made it
        return None

    def _builtin_hasattr(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        value, name = (*arguments, NONE, NONE)[:2]
        if (
            isinstance(value, Thing)
            and value.kind in ("dict", "list", "tuple")
            and name == Constant("__dict__")
        ):
            return FALSE
        return self.operate("hasattr", tuple(arguments))

    def _builtin_getattr(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        found: list[Value] = []
        for option, _guard in options_of(arguments[1]) if len(arguments) > 1 else ():
            owner, name = arguments[0], str(self.text_of(option))
            if len(arguments) > 2 and isinstance(owner, ClassValue) and owner.find(name) is None:
                # Who gives a default expects classes that lack it; what a library's class has is not known.
                found.append(arguments[2])
            else:
                found.append(self.attribute_by(owner, option))
        value = either(*found) if found else self.unknown()
        if len(arguments) > 2 and isinstance(value, Thing) and value.is_unknown:
            # An attribute that code of the project sets is there, whatever it may be.
            owner = arguments[0]
            name = str(self.text_of(arguments[1]))
            is_set = isinstance(owner, Thing) and value is owner.fields.get(name)
            return value if is_set else either(value, arguments[2])
        return value

    def _builtin_setattr(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if len(arguments) == 3:
            name = self.text_of(arguments[1])
            if name is not None:
                self.set_attribute(arguments[0], name, arguments[2])
            else:
                self._hold_one_more(arguments[0], arguments[2])
        return NONE

    def _hold_one_more(self, value: Value, item: Value) -> None:
        for option, _ in options_of(value):
            if isinstance(option, Thing):
                before = option.fields.get("[*]")
                self.store.write(option.fields, "[*]", item if before is None else either(before, item))

    def _builtin_callable(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        value = arguments[0] if arguments else NONE
        return TRUE if isinstance(value, FunctionValue | ClassValue) else self.operate("callable", (value,))

    def _builtin_is_class(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        value = arguments[0] if arguments else NONE
        is_known = isinstance(value, ClassValue | FunctionValue | Constant | ModuleValue)
        return Constant(isinstance(value, ClassValue)) if is_known else self.operate("is class", (value,))

    def _builtin_is_function(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        value = arguments[0] if arguments else NONE
        is_known = isinstance(value, ClassValue | FunctionValue | Constant | ModuleValue)
        return (
            Constant(isinstance(value, FunctionValue)) if is_known else self.operate("is function", (value,))
        )

    def _builtin_argument_names(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        """`inspect.getfullargspec(function)`."""
        function = arguments[0] if arguments else NONE
        made = Thing("signature")
        if isinstance(function, FunctionValue):
            plain = [item for item in function.function.parameters if not item.star]
            defaults = [self.default_of(function, item.default) for item in plain]
            known = [value for value in defaults if value is not None]
            made.fields["args"] = self.container("list", [Constant(item.name) for item in plain])
            made.fields["defaults"] = self.container("tuple", known) if known else NONE
        return made

    def _builtin_len(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        exact = self.exact_items(arguments[0]) if arguments else None
        return Constant(len(exact)) if exact is not None else self._number("len", arguments)

    def _number(self, name: str, arguments: list[Value]) -> Value:
        found = self.operate(name, tuple(arguments))
        found.kind = "number"
        return found

    def _builtin_type(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        value = arguments[0] if arguments else NONE
        if isinstance(value, Thing) and value.cls is not None:
            return value.cls
        return self.operate("type", (value,))

    # -- reading on the CPU

    def _reads(self, name: str, arguments: list[Value], call: Call) -> Value:
        for argument in arguments[:1]:
            if isinstance(argument, Union) and all(_is_setting(option) for option, _ in argument.options):
                # An option of the command line, converted, is still one, beside its converted default.
                known = [item for item, _ in argument.options if isinstance(item, Constant)]
                others = [item for item, _ in argument.options if not isinstance(item, Constant)]
                return either(*(self._reads(name, [item], call) for item in known), *others)
            if isinstance(argument, Constant) and name in ("float", "int", "bool", "str"):
                try:
                    return Constant(
                        {"float": float, "int": int, "bool": bool, "str": str}[name](argument.value)
                    )
                except (TypeError, ValueError):
                    return self.unknown()
            waited = self.wait(name, argument, call)
            if waited and self.is_tensor(argument):
                # Each reading of a tensor gives a new number.
                waited[0].result = Thing("number", name, waited[0])
                return waited[0].result
        return self.unknown("text") if name in ("str", "repr") else self._number(name, arguments)

    def _builtin_float(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._reads("float", arguments, call)

    def _builtin_int(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        result = self._reads("int", arguments, call)
        given = arguments[0] if arguments else NONE
        operator = given.operation[0] if isinstance(given, Thing) and given.operation is not None else ""
        if operator in ("*", "/") or (isinstance(given, Constant) and isinstance(given.value, float)):
            self.happen("truncate", "int", None, {"0": given}, call).result = result
        return result

    def _builtin_bool(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if arguments:
            known = truth(arguments[0], self.path)
            if known is not None:
                return TRUE if known else FALSE
            if not self.is_tensor(arguments[0]):
                return arguments[0]
        return self._reads("bool", arguments, call)

    def _builtin_str(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._reads("str", arguments, call)

    def _builtin_print(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        for argument in arguments:
            self.wait("print", argument, call)
        return NONE

    def _builtin_round(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return (
            arguments[0] if arguments and self.is_tensor(arguments[0]) else self._number("round", arguments)
        )

    def _builtin_abs(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if arguments and self.is_tensor(arguments[0]):
            return self.tensor("op", "abs", None, {"0": arguments[0]}, call)
        return self._number("abs", arguments)

    def _folded(self, name: str, arguments: list[Value], call: Call) -> Value:
        """`sum`, `max`, `min`; applied to tensors, they give a tensor."""
        held = arguments if len(arguments) > 1 else [self.element(item) for item in arguments]
        tensors = {str(position): item for position, item in enumerate(held)}
        if any(self.is_tensor(item) for item in held):
            exact = self.exact_items(arguments[0])
            if exact:
                tensors = {str(position): item for position, item in enumerate(exact)}
            return self.tensor("op", name, None, tensors, call)
        if len(arguments) > 1 and all(isinstance(item, Constant) for item in arguments):
            try:
                return Constant({"max": max, "min": min}[name](item.value for item in arguments))  # type: ignore[attr-defined]
            except (KeyError, TypeError):
                pass
        return self.operate(name, tuple(held))

    def _builtin_sum(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._folded("sum", arguments[:1], call)

    def _largest(self, name: str, arguments: list[Value], call: Call) -> Value:
        compared = arguments if any(map(self.is_tensor, arguments)) else ()
        waits = [event for argument in compared for event in self.wait(name, argument, call)]
        result = self._folded(name, arguments, call)
        for event in waits:  # Python compares the items one by one
            event.result = result
        return result

    def _builtin_max(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._largest("max", arguments, call)

    def _builtin_min(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._largest("min", arguments, call)

    def _any(self, name: str, arguments: list[Value]) -> Value:
        return self.operate(name, tuple(arguments))

    def _builtin_any(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._any("any", arguments)

    def _builtin_all(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._any("all", arguments)

    # -- making and going through containers

    def _builtin_range(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        made = Thing("range", "range")
        given = [Constant(0), *arguments] if len(arguments) == 1 else arguments
        for name, value in zip(("start", "stop", "step"), [*given, Constant(1)], strict=False):
            made.fields[name] = value
        made.fields.setdefault("stop", self.unknown())
        return made

    def _over(self, kind: str, value: Value) -> Thing:
        made = Thing(kind, kind)
        made.fields["over"] = value
        return made

    def _builtin_enumerate(self, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        value = arguments[0] if arguments else keywords.get("iterable", self.unknown())
        return self._over("enumerate", value)

    def _builtin_zip(self, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        starred = [
            item.fields["over"] for item in arguments if isinstance(item, Thing) and item.kind == "star"
        ]
        if starred:
            # `zip(*rows)` goes through the columns.
            row = self.element(starred[0])
            columns = self.exact_items(row)
            if columns:
                return self.container("tuple", [self.container("tuple", None, item) for item in columns])
            return self._over("zip", self.container("tuple", None, row))
        return self._over("zip", self.container("tuple", arguments))

    def _builtin_chain(self, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        made = self.container("list", [])
        for item in arguments:
            is_star = isinstance(item, Thing) and item.kind == "star"
            self.extend(made, self.element(item.fields["over"]) if is_star else item)  # type: ignore[attr-defined]
        return made

    def _builtin_map(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if len(arguments) < 2:
            return self.unknown()
        known = self.ordered(arguments[1]) if len(arguments) == 2 else None
        if known is not None:
            made = [self.call_value(arguments[0], [item], {}, call) for item in known]
            return self.container("list", made, is_exact=self.exact_items(arguments[1]) is not None)
        given = [self.element(item) for item in arguments[1:]]
        return self.container("list", None, self.call_value(arguments[0], given, {}, call))

    def _builtin_filter(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if len(arguments) < 2:
            return self.unknown()
        if isinstance(arguments[0], FunctionValue):
            self.call_value(arguments[0], [self.element(arguments[1])], {}, call)
        return self._over("iterator", arguments[1])

    def _sequence(self, kind: str, arguments: list[Value]) -> Value:
        if not arguments:
            return self.container(kind)
        value = arguments[0]
        known = self.ordered(value)
        if known is not None:
            return self.container(kind, known, is_exact=self.exact_items(value) is not None)
        if isinstance(value, Thing) and value.kind in ("parameters", "loader"):
            return value
        return self.container(kind, None, self.element(value))

    def _builtin_list(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._sequence("list", arguments)

    def _builtin_tuple(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._sequence("tuple", arguments)

    def _builtin_set(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._sequence("set", arguments)

    def _builtin_sorted(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self.container("list", None, self.element(arguments[0])) if arguments else self.unknown()

    def _builtin_reversed(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        known = self.ordered(arguments[0]) if arguments else None
        if known is not None:
            return self.container("list", known[::-1], is_exact=self.exact_items(arguments[0]) is not None)
        return self._over("iterator", arguments[0]) if arguments else self.unknown()

    def _builtin_dict(self, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        made = self.container("dict")
        self.fill_dict(made, arguments, keywords)
        return made

    def fill_dict(self, made: Thing, arguments: list[Value], keywords: dict[str, Value]) -> None:
        """Give a dict what its constructor gets."""
        for argument in arguments:
            self.update(made, argument)
        for key, item in keywords.items():
            if key.startswith("*"):
                self.update(made, item)
            else:
                self.store.write(made.fields, ("item", key), item)

    def _builtin_iter(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self._over("iterator", arguments[0]) if arguments else self.unknown()

    def _builtin_next(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        if not arguments:
            return self.unknown()
        value = arguments[0]
        if isinstance(value, Thing) and value.cls is not None and value.cls.find("__next__") is not None:
            return self.call_method(value, "__next__", [], {}, call)
        return self.element(value)

    def _builtin_super(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        made = Thing("super")
        frame = self.frame
        while frame.receiver is None and frame.outer is not None:
            frame = frame.outer
        receiver = arguments[1] if len(arguments) > 1 else frame.receiver
        after = arguments[0] if arguments else frame.cls
        if receiver is not None:
            made.fields["receiver"] = receiver
        if isinstance(after, ClassValue):
            made.fields["after"] = after
        return made

    def _builtin_exec(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        """Executed text may set every variable of the module."""
        frame = self.frame
        while frame.outer is not None:
            frame = frame.outer
        for name, value in list(frame.names.items()):
            if name in frame.file.imports(frame.function):
                continue
            if all(isinstance(option, Constant | Symbol) for option, _ in options_of(value)):
                self.store.write(frame.names, name, self._or_else(value, name))
        return NONE

    def _or_else(self, value: Value, name: str) -> Value:
        return join([*options_of(value), Option(self.unknown(name), ())])

    def _builtin_globals(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        made = Thing("globals", "globals")
        frame = self.frame
        while frame.outer is not None:
            frame = frame.outer
        made.fields["over"] = ModuleValue(frame.file)
        return made

    def _builtin_eval(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        """The value of a name in a text; what other expressions give is not known."""
        found = []
        for option, guard in options_of(arguments[0]) if arguments else ():
            text = self.text_of(option)
            is_name = text is not None and all(part.isidentifier() for part in text.split("."))
            made = self.evaluate(Name(text)) if is_name and text is not None else None
            found.append(Option(made or self.operate("eval", (option,)), guard))
        return join(found) if found else self.unknown()

    def _builtin_vars(self, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return self.attribute(arguments[0], "__dict__") if arguments else self.unknown()

    def _globals_items(self, receiver: Thing, _: list[Value], __: dict[str, Value], call: Call) -> Value:
        over = receiver.fields["over"]
        assert isinstance(over, ModuleValue)
        pairs = [
            self.container("tuple", [Constant(name), self.global_of(over, name)])
            for name in self._names_of(over.file, set())
        ]
        return self.container("list", pairs)

    def _names_of(self, file: File, seen: set[File]) -> list[str]:
        """The global names of a file of the project: those that it defines, then those that it imports."""
        seen.add(file)
        self.run_module(file)
        imports = file.imports(file.tables.module)
        found = dict.fromkeys([*self.frames[file].names, *imports])
        found = {name: None for name in found if name not in imports} | found
        for item in imports.get("*", ()):
            inner = self.project.module(file, item.qualified)
            if inner is not None and inner not in seen:
                found.update(dict.fromkeys(self._names_of(inner, seen)))
        return [name for name in found if name != "*"]

    def _builtin_import_module(self, arguments: list[Value], keywords: dict[str, Value], call: Call) -> Value:
        """`importlib.import_module(name)`."""
        name = arguments[0] if arguments else keywords.get("name", self.unknown())
        found = []
        for option, guard in options_of(name):
            text = self.text_of(option)
            made = self.import_(self.frame.file, text) if text is not None else None
            if isinstance(option, ModuleValue):
                made = option
            found.append(Option(made or self.operate("import", (option,)), guard))
        return join(found)

    def _globals_update(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        return self._builtin_exec([], {}, call)

    # -- what summaries of libraries say

    def summarised(self, name: str, arguments: list[Value]) -> Value:
        """Call a function of `tclint.summary`, which the summaries of libraries import.

        `mark(thing, "@device", value)` sets what has no attribute, `mark("accumulate")` is a context of that
        name, `outside("command line", False, "--amp")` a value that is chosen there (with a default and the
        option's name, where there are), `opened(Arguments, "command line", "config")` an object of a class
        whose fields are chosen there, or by the file that an option names,
        `given()` a dict of the parameters of the function that called the summary's,
        `passed(("--amp",), options, value, str)` what commands pass for an option, else the value,
        `loaded("ds.json", "a file")` what a configuration file holds, `literal("[1, 2]")` what a text says in
        Python, `filled(Arguments, values)` an object
        of a class that gets it, `launched("accelerate launch", "mixed_precision", "config_file")` what
        commands pass for an option of a tool, `composed("conf", "train")` a configuration of Hydra,
        `instantiated(config, options)` what its `_target_` makes, `merged(config, other)` one
        configuration of several, of which the later ones win, `allowed("torch", "2.8")` whether the
        project allows a release or a newer one.
        """
        if name == "outside":
            found = self.chosen_outside(arguments[0])
            if len(arguments) > 2:
                found.fields["@option"] = arguments[2]
            return either(arguments[1], found) if len(arguments) > 1 else found
        if name == "allowed":
            return self.allowed(*arguments)
        if name == "loaded":
            return self.loaded(arguments[0], arguments[1])
        if name == "literal":
            return self.literal(arguments[0])
        if name == "given":
            return self._given()
        if name == "filled":
            values = arguments[1]
            given: dict[str, Value] = {"**": values}
            if isinstance(values, Thing) and values.kind == "dict":
                given = {key[1]: item for key, item in values.fields.items() if isinstance(key, tuple)}
            return self.call_value(arguments[0], [], given)
        if name == "launched":
            return self.launched(*arguments)
        if name == "opened":
            return self.opened(*arguments)
        if name == "passed":
            return self.passed(*arguments)
        if name == "merged":
            return self.merged(arguments)
        if name == "composed":
            return self.composed(*arguments)
        if name == "instantiated":
            return self.instantiated(*arguments)
        if len(arguments) == 1:
            return Thing("context", str(self.text_of(arguments[0])))
        for thing in self._marked(arguments[0]):
            self.store.write(thing.fields, str(self.text_of(arguments[1])), arguments[2])
        return arguments[0]

    def _given(self) -> Value:
        """The arguments, by parameter, of the function that called the one that runs."""
        made = self.container("dict")
        caller = self.frame.caller
        if caller is None:
            return made
        for parameter in caller.function.parameters:
            value = caller.names.get(parameter.name)
            if value is None or value is caller.receiver:
                continue
            if parameter.star == "**" and isinstance(value, Thing):
                made.fields.update(value.fields)
            else:
                self.set_item(made, Constant(parameter.name), value)
        return made

    def _marked(self, value: Value) -> Iterator[Thing]:
        for option, _ in options_of(value):
            if isinstance(option, Thing):
                if option.kind in ("list", "tuple", "dict"):
                    for item in self.values_in(option):
                        yield from self._marked(item)
                else:
                    yield option

    # -- what a round of a loop gets

    def element_of_thing(self, value: Thing) -> Value:
        """The item that one round of a loop over a thing gets."""
        kind = value.kind
        over = value.fields.get("over")
        if kind == "enumerate" and over is not None:
            return self.container("tuple", [Thing("number"), self.element(over)])
        if kind == "zip" and over is not None:
            return self.container("tuple", [self.element(item) for item in self.values_in(over)])
        if kind in ("iterator", "progress") and over is not None:
            if (
                isinstance(over, Thing)
                and value.name[:1] == "."
                and (whole := root_of(over)).kind == "module"
            ):
                return self.part(value, whole if over.is_unknown else over)
            return self.element(over)
        if kind == "range":
            return Thing("number", operation=("each", (value,)))
        if kind == "parameters":
            return self._parameter_of(value)
        if kind == "loader":
            return self.batch(value)
        if kind == "tensor":
            return self.tensor("op", "[]", value, {})
        if kind == "generator":
            return self.yielded(value)
        if value.cls is not None:
            method = value.cls.find("__iter__")
            if method is not None and value.cls.find("__next__") is None:
                inner = self.call_value(self.bind(method, value), [], {})
                if inner is not value:
                    return self.element(inner)
            method = value.cls.find("__next__")
            if method is not None:
                return self.call_value(self.bind(method, value), [], {})
        return Thing("", "item", operation=("each", (value,)))

    def _parameter_of(self, value: Thing) -> Value:
        found = value.fields.get("element")
        if found is None:
            found = Thing("tensor", "parameter")
            found.fields["@parameter of"] = value.fields.get("over", self.unknown())
            value.fields["element"] = found
        if value.name in (".named_parameters", ".named_buffers"):
            return self.container("tuple", [self.unknown("name"), found])
        return found

    # -- provided elsewhere

    def default_of(self, value: FunctionValue, default: Expression | None) -> Value | None:
        raise NotImplementedError

    def construct(self, made: Thing, arguments: list[Value], keywords: dict[str, Value]) -> None:
        raise NotImplementedError

    def spec_of(self, thing: Thing, name: str) -> Spec | None:
        raise NotImplementedError

    def run_items(self, module: Thing, value: Value) -> Value:
        raise NotImplementedError

    def part(self, iterator: Thing, module: Thing) -> Value:
        raise NotImplementedError

    def yielded(self, generator: Thing) -> Value:
        raise NotImplementedError

    def attribute_of_super(self, value: Thing, name: str) -> Value:
        found = self._after(value, name)
        receiver = value.fields.get("receiver", self.unknown())
        if found is not None:
            return self.bind(found, receiver)
        return self.operate(".", (receiver, Constant(f"super.{name}")), name)

    def _after(self, value: Thing, name: str) -> Value | None:
        """The attribute as the classes after the current one in the lineage define it, for `super()`."""
        receiver, after = value.fields.get("receiver"), value.fields.get("after")
        if not isinstance(receiver, Thing) or receiver.cls is None:
            return None
        lineage = list(receiver.cls.lineage())
        start = lineage.index(after) + 1 if isinstance(after, ClassValue) and after in lineage else 1
        for item in lineage[start:]:
            found = item.namespace.get(name)
            if found is not None:
                return found
        return None

    def call_super(
        self, value: Thing, name: str, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        found = self._after(value, name)
        receiver = value.fields.get("receiver")
        if found is not None and receiver is not None:
            return self.call_value(self.bind(found, receiver), arguments, keywords, call)
        if not isinstance(receiver, Thing) or name == "__init__":
            if isinstance(receiver, Thing):
                self.construct(receiver, arguments, keywords)
            return NONE
        native = self.native_method(receiver, name)
        if native is not None:
            return native(receiver, arguments, keywords, call)
        if name == "forward" and self.wrapper_of(receiver) is not None:
            return self.call_value(receiver.fields["module"], arguments, keywords, call)
        spec = self.spec_of(receiver, "()" if name == "forward" else name)
        if spec is not None and spec.runs == "items":
            return self.run_items(receiver, arguments[0] if arguments else NONE)
        if spec is not None:
            return self.call_spec(spec, f".{name}", receiver, arguments, keywords, call)
        event = self.happen("call", f"super.{name}", receiver, self.bound((), arguments, keywords), call)
        event.result = self.unknown(name, event)
        return event.result
