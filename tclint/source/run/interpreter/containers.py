"""Lists, tuples, dicts and iteration over them; items and attributes of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tclint.source.run.files import File
from tclint.source.run.interpreter.core import Core
from tclint.source.run.values import (
    NONE,
    TRUE,
    ClassValue,
    Constant,
    Frame,
    FunctionValue,
    ModuleValue,
    Option,
    Symbol,
    Thing,
    Union,
    Value,
    constant_of,
    either,
    integers_of,
    join,
    options_of,
)
from tclint.source.syntax.tables import Call

SEQUENCES = frozenset({"list", "tuple", "set"})
_MOST_ITEMS = 128
"""The longest list whose items are kept one by one."""


class Containers(Core):
    """Reads and writes items and attributes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._importing: set[tuple[File, str]] = set()
        """Names that are being imported, to stop circular imports."""
        self._getting: set[tuple[Thing, str]] = set()
        """Attributes that a `__getattr__` is computing."""

    # -- containers

    def container(
        self,
        kind: str,
        items: Iterable[Value] | None = (),
        rest: Value | None = None,
        *,
        is_exact: bool = True,
    ) -> Thing:
        """A list, tuple, set or dict.

        Args:
            items: its items in order; None if only `rest`, the value of any item, is known.
            is_exact: whether it holds exactly these items; otherwise there may be more or fewer of the kind.
        """
        made = Thing(kind, kind)
        if kind == "list" and self.loops:
            made.fields["@loops"] = Constant(self.loops)
        if items is not None and kind != "dict":
            self.fill(made, items, is_exact=is_exact)
        if rest is not None:
            made.fields["[*]"] = rest
        return made

    def fill(self, value: Thing, items: Iterable[Value], *, is_exact: bool = True) -> None:
        """Give a container its items."""
        kept = list(items)
        if len(kept) > _MOST_ITEMS:
            self.store.write(value.fields, "[*]", either(*kept))
            return
        for position, item in enumerate(kept):
            self.store.write(value.fields, ("item", position), item)
        self.store.write(value.fields, "[]", Constant(len(kept)))
        if not is_exact:
            self.store.write(value.fields, "[~]", TRUE)

    def is_sequence(self, value: Value) -> bool:
        return isinstance(value, Thing) and value.kind in SEQUENCES

    def is_listed(self, value: Value) -> bool:
        """Whether a value is a sequence, or the list of a module's parameters."""
        return isinstance(value, Thing) and value.kind in (*SEQUENCES, "parameters")

    def exact_items(self, value: Value) -> list[Value] | None:
        """The items of a list or tuple, or the keys of a dict, if all are known; None otherwise."""
        if isinstance(value, Thing) and "[]" in value.fields:
            length = value.fields["[]"]
            if isinstance(length, Constant) and "[*]" not in value.fields and "[~]" not in value.fields:
                return [value.fields["item", position] for position in range(length.value)]  # type: ignore[call-overload]
        if isinstance(value, Thing) and value.kind == "dict" and "[*]" not in value.fields:
            return [Constant(key[1]) for key in value.fields if isinstance(key, tuple)]
        if isinstance(value, Constant) and isinstance(value.value, str) and len(value.value) <= 1:
            return [Constant(letter) for letter in value.value]
        return None

    def ordered(self, value: Value) -> list[Value] | None:
        """The items of a container in their order, as far as it is known; a list that a loop fills has those
        of two rounds. An item that may be missing can also be None."""
        counts = integers_of(value.fields.get("[]")) if isinstance(value, Thing) else ()
        if not isinstance(value, Thing) or "[*]" in value.fields or not counts:
            return self.exact_items(value)
        items = [value.fields.get(("item", position), NONE) for position in range(max(counts))]
        return [*items[: min(counts)], *(either(item, NONE) for item in items[min(counts) :])]

    def values_in(self, value: Value) -> list[Value]:
        """All items that a container is known to hold."""
        if not isinstance(value, Thing):
            return []
        return [item for key, item in value.fields.items() if key == "[*]" or isinstance(key, tuple)]

    def concatenated(self, left: Value, right: Value) -> Value:
        one, other = self.ordered(left), self.ordered(right)
        if one is not None and other is not None:
            is_exact = self.exact_items(left) is not None and self.exact_items(right) is not None
            return self.container("list", [*one, *other], is_exact=is_exact)
        held = [part for value in (left, right) for part in (self.values_in(value) or [self.element(value)])]
        return self.container("list", None, either(*held, self.unknown()))

    def repeated(self, value: Value, times: Value) -> Value:
        """`[value] * times`."""
        items, number = self.exact_items(value), constant_of(times)
        known = [one for one in options_of(times) if isinstance(one[0], Constant)]
        if items is not None and known and isinstance(times, Union):
            # What may replace a number replaces the list that it makes.
            ways = {one: self.repeated(value, one) for one, _ in known}
            return join([Option(ways.get(one, one), guard) for one, guard in options_of(times)])
        if items is not None and isinstance(number, int) and len(items) * number <= _MOST_ITEMS:
            return self.container("list", items * number)
        return self.container("list", self.ordered(value), is_exact=False)

    def add_items(self, value: Thing, items: Iterable[Value], *, is_exact: bool = True) -> None:
        """`list.append`, `list.extend`: a loop adds its items once for each round that is run."""
        fields = value.fields
        made = fields.get("@loops")
        inner = self.loops[len(made.value) if isinstance(made, Constant) else 0 :]  # type: ignore[arg-type]
        if not is_exact or not all(round_.loop.rounds for round_ in inner):
            self.store.write(fields, "[~]", TRUE)
        for item in items:
            counts = integers_of(fields.get("[]")) if "[*]" not in fields else ()
            most = max(counts, default=_MOST_ITEMS)
            if most < _MOST_ITEMS:
                for position in range(min(counts), most):
                    missing = either(fields.get(("item", position), NONE), NONE)
                    self.store.write(fields, ("item", position), missing)
                    self.store.write(fields, "[~]", TRUE)
                self.store.write(fields, ("item", most), item)
                self.store.write(fields, "[]", Constant(most + 1))
            else:
                before = fields.get("[*]")
                self.store.write(fields, "[*]", item if before is None else either(before, item))

    def extend(self, value: Thing, other: Value) -> None:
        """`list.extend`, `list += other`."""
        items = self.ordered(other)
        if items is not None:
            self.add_items(value, items, is_exact=self.exact_items(other) is not None)
        else:
            self.add_items(value, [either(self.element(other), NONE)], is_exact=False)

    def disorder(self, value: Thing, *more: Value) -> None:
        """Forget the order of the items."""
        held = [*self.values_in(value), *more]
        if held:
            self.store.write(value.fields, "[*]", either(*held))

    def update(self, value: Thing, other: Value) -> None:
        """`dict.update`."""
        if (owner := value.fields.get("@attributes of")) is not None and isinstance(other, Thing):
            for key, item in other.fields.items():
                if isinstance(key, tuple):
                    self.set_attribute(owner, str(key[1]), item)
        pairs = [self.exact_items(pair) for pair in self.exact_items(other) or ()]
        if isinstance(other, Thing) and other.kind == "dict":
            for key, item in list(other.fields.items()):
                known = value.fields.get(key) if key == "[*]" else None
                self.store.write(value.fields, key, item if known is None else either(known, item))
        elif pairs and all(pair is not None and len(pair) == 2 for pair in pairs):
            for pair in pairs:
                self.set_item(value, pair[0], pair[1])  # type: ignore[index]
        else:
            before = value.fields.get("[*]")
            rest = self.each(other, self._held_by_pairs)
            self.store.write(value.fields, "[*]", rest if before is None else either(before, rest))

    def _held_by_pairs(self, other: Value) -> Value:
        """Any value of a dict that is made of pairs, or of something unknown."""
        pair = self.exact_items(self.element(other)) if _gives_pairs(other) else None
        return pair[1] if pair is not None and len(pair) == 2 else self.item(other, self.unknown("key"))

    def holds(self, value: Value, item: Value) -> bool | None:
        """Whether a container holds a constant; None if that is unknown."""
        if not isinstance(item, Constant) or not isinstance(value, Thing):
            return None
        exact = self.exact_items(value)
        if exact is None or not all(isinstance(other, Constant) for other in exact):
            return None
        return item in exact or self._registers(value, item.value)

    def item(self, value: Value, key: Value) -> Value:
        """`value[key]`."""
        if isinstance(value, Thing):
            if value.kind == "globals":
                return self._named(value.fields["over"], key)
            if value.kind in SEQUENCES or value.kind == "dict" or "[]" in value.fields:
                return self._item_of_container(value, key)
            if value.kind == "tensor":
                if self.is_mask(key):
                    self.wait("mask", key)
                for bound in self._bounds(key):
                    self.wait("slice", bound)
                return self.tensor("op", "[]", value, {"0": key})
            if value.kind == "state" and any(
                isinstance(owner, Thing) and owner.kind == "module"
                for owner, _ in options_of(value.fields.get("over", NONE))
            ):
                return self._parameter_of(value)
            if value.kind == "module":
                items = self.values_in(value)
                exact = value.fields.get(("item", key.value)) if isinstance(key, Constant) else None
                return exact or (either(*items) if items else self.unknown())
            if isinstance(key, Constant):
                found = value.fields.get(("item", key.value))
                if found is not None:
                    return self.refine(found)
            if value.cls is not None:
                method = value.cls.find("__getitem__")
                if method is not None:
                    return self.call_value(self.bind(method, value), [key], {})
        if isinstance(value, Symbol):
            if value.name == "sys.modules" and isinstance(key, ModuleValue):
                return key
            if value.name == "sys.modules" and (module := self.text_of(key)) is not None:
                file = self.frame.file
                return ModuleValue(file) if module == file.name else self.import_(file, module)
            if value.name.endswith(".__dict__"):
                return self._named(Symbol(value.name.removesuffix(".__dict__")), key)
            if isinstance(key, Constant):
                return self.operate("[]", (value, key), f"{value.name}[{key.value!r}]")
            return self.operate("[]", (value, key))
        operator, operands = (value.operation or ("", ())) if isinstance(value, Thing) else ("", ())
        if operator == "." and operands[1] == Constant("__dict__"):
            return self._named(operands[0], key)
        if isinstance(value, Constant) and isinstance(key, Constant):
            try:
                return Constant(value.value[key.value])  # type: ignore[index]
            except (TypeError, LookupError):
                return self.unknown()
        return self.operate("[]", (value, key))

    def _named(self, value: Value, name: Value) -> Value:
        """An attribute of a Python module by its name: `models.__dict__[name]`."""
        return either(*(self.attribute_by(value, option) for option, _ in options_of(name)))

    def attribute_by(self, value: Value, name: Value) -> Value:
        """The attribute that a value's alternative names; of an option of the command line, one more choice
        of that option."""
        if isinstance(name, Constant) and isinstance(name.value, str):
            return self.attribute(value, name.value)
        given = (value, name)
        return self.from_outside("getattr", given) or self.operate("getattr", given)

    def _item_of_container(self, value: Thing, key: Value) -> Value:
        found: list[Option] = []
        for option, guard in options_of(key):
            if isinstance(option, Constant):
                wanted = option.value
                length = value.fields.get("[]")
                if isinstance(wanted, int) and wanted < 0 and isinstance(length, Constant):
                    wanted = wanted + length.value if "[~]" not in value.fields else None  # type: ignore[operator]
                exact = value.fields.get(("item", wanted))
                if exact is None and self._registers(value, wanted):
                    exact = value.fields.get(("item", wanted))
                if exact is not None:
                    found.append(Option(exact, guard))
                    continue
                if isinstance(key, Union) and not self._may_hold(value, option):
                    continue
                rest = value.fields.get("[*]")
                if rest is None and "[~]" in value.fields and (held := self.values_in(value)):
                    rest = either(*held)
                found.append(Option(rest if rest is not None else self.operate("[]", (value, option)), guard))
            elif isinstance(option, Thing) and option.operation and option.operation[0] == "slice":
                found.append(Option(self._part(value, option.operation[1]), guard))
            elif (
                isinstance(key, Union)
                and isinstance(option, Thing)
                and any(self._may_hold(value, other) for other, _ in key.options)
            ):
                # An unknown key beside known ones selects an unknown item, which is named after the key.
                found.append(Option(self._other_item(value, option), guard))
            else:
                held = self.values_in(value)
                found.append(Option(either(*held) if held else self.operate("[]", (value, option)), guard))
                if isinstance(option, Thing) and option.made is not None and option.made.kind == "wait":
                    self.happen("lookup", "[]", value, {"0": option})
        return self.refine(join(found)) if found else self.operate("[]", (value, key))

    def _registers(self, value: Thing, name: object) -> bool:
        """Whether files that register things under a name, in decorators, have been run for a dict that lacks
        it: all that the program imports has been run by the time it looks something up."""
        if value.kind != "dict" or not isinstance(name, str) or "[*]" in value.fields:
            return False
        for file in self.project.registering(next(iter(self.frames)), name):
            if file not in self.frames:
                self.run_module(file)
        return ("item", name) in value.fields

    def _may_hold(self, value: Thing, key: Value) -> bool:
        """Whether a container may have an item under a constant; a dict that lacks it raises, so that a
        program which goes on has used another key."""
        is_whole = value.kind == "dict" and not {"[*]", "[~]"} & value.fields.keys()
        return isinstance(key, Constant) and (not is_whole or ("item", key.value) in value.fields)

    def _other_item(self, value: Thing, key: Thing) -> Value:
        made = Thing("", key.name)
        made.fields.update({name: item for name, item in key.fields.items() if str(name).startswith("@")})
        return made if value.kind == "dict" else self.operate("[]", (value, key))

    def _part(self, value: Thing, bounds: tuple[Value, ...]) -> Value:
        """`value[start:stop:step]`."""
        made = Thing(value.kind if value.kind == "tuple" else "list", value.kind)
        if value.kind == "module":
            made = Thing("module", value.name, value.made)
        items, numbers = self.ordered(value), [constant_of(bound) for bound in bounds]
        if items is not None and all(isinstance(bound, Constant) for bound in bounds):
            at = slice(*(number if isinstance(number, int) else None for number in numbers))
            self.fill(made, items[at], is_exact=self.exact_items(value) is not None)
        elif held := self.values_in(value):
            made.fields["[*]"] = either(*held)
        return made

    def set_item(self, value: Value, key: Value, item: Value) -> None:
        """`value[key] = item`."""
        for option, _ in options_of(value):
            if isinstance(option, Thing):
                if option.kind == "tensor":
                    self.tensor("op", "[]=", option, {"0": key, "value": item})
                    continue
                count = constant_of(option.fields.get("[]"))
                owner = option.fields.get("@attributes of")
                if owner is not None and (name := self.text_of(key)) is not None:
                    self.set_attribute(owner, name, item)
                if isinstance(key, Constant) and not isinstance(value, Union):
                    at = key.value
                    if isinstance(at, int) and at < 0 and isinstance(count, int):
                        at += count
                    self.store.write(option.fields, ("item", at), item)
                else:
                    before = option.fields.get("[*]")
                    self.store.write(option.fields, "[*]", item if before is None else either(before, item))
            elif isinstance(option, Symbol):
                name = f"{option.name}[{key.value!r}]" if isinstance(key, Constant) else f"{option.name}[?]"
                self.happen("set", name, option, {"value": item})

    def element(self, value: Value) -> Value:
        """The item that one round of a loop over a value gets."""
        if isinstance(value, Union):
            return either(*(self.element(option) for option, _ in value.options))
        if not isinstance(value, Thing):
            return self.unknown("item") if not isinstance(value, Symbol) else self.operate("each", (value,))
        if value.kind in SEQUENCES or value.kind == "module":
            held = self.values_in(value)
            return either(*held) if held else self.unknown("item")
        if value.kind == "dict":
            keys = [Constant(key[1]) for key in value.fields if isinstance(key, tuple)]
            return either(*keys, *([self.unknown("key")] if "[*]" in value.fields or not keys else []))
        return self.element_of_thing(value)

    def unpacked(self, value: Value, count: int) -> list[Value]:
        """The parts of `a, b = value`."""
        if isinstance(value, Union):
            several = [self.unpacked(option, count) for option, _ in value.options]
            return [either(*parts) for parts in zip(*several, strict=True)]
        exact = self.exact_items(value)
        if exact is not None and len(exact) == count:
            return exact
        if isinstance(value, Thing) and value.kind in SEQUENCES and "[*]" in value.fields:
            return [value.fields["[*]"]] * count
        return [self.item(value, Constant(position)) for position in range(count)]

    # -- attributes

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""
        if name in ("__name__", "__qualname__") and isinstance(value, ClassValue | FunctionValue):
            return Constant(value.function.name)
        if name == "__module__" and isinstance(value, ClassValue | FunctionValue):
            return ModuleValue(value.file)  # which stands for its name
        if isinstance(value, Thing):
            return self._attribute_of_thing(value, name)
        if isinstance(value, Union):
            known = [option for option in value.options if option.value != Constant(None)]
            if len(known) == 1:
                return self.attribute(known[0].value, name)
            return self.each(value, lambda inner: self.attribute(inner, name))
        if isinstance(value, Symbol):
            return self.symbol(f"{value.name}.{name}")
        if isinstance(value, ModuleValue):
            if name == "__dict__":
                made = Thing("globals", "globals")
                made.fields["over"] = value
                return made
            return self.global_of(value, name)
        if isinstance(value, Constant) and isinstance(value.value, str) and name == "type":
            # `torch.device(...)` is represented by its type.
            return Constant(value.value)
        if (part := self.part_of_path(value, name)) is not None:
            return part
        if isinstance(value, ClassValue):
            found = value.find(name)
            if found is not None:
                return self._of_class(found, value)
            for base in value.library_bases():
                return self.symbol(f"{base.name}.{name}")
            return self.unknown(name)
        return self.operate(".", (value, Constant(name)), name)

    def _of_class(self, found: Value, owner: ClassValue) -> Value:
        if isinstance(found, Thing) and found.kind == "staticmethod":
            return found.fields["function"]
        if isinstance(found, Thing) and found.kind == "classmethod":
            function = found.fields["function"]
            return function.bound_to(owner) if isinstance(function, FunctionValue) else function
        return found

    def bind(self, found: Value, receiver: Value) -> Value:
        """A class attribute as read from an object: methods are bound, properties are called."""
        if isinstance(found, FunctionValue):
            return found if found.owner is None else found.bound_to(receiver)
        if isinstance(found, Thing):
            function = found.fields.get("function")
            if found.kind == "staticmethod" and function is not None:
                return function
            if found.kind == "classmethod" and isinstance(function, FunctionValue):
                return function.bound_to(receiver)
            if found.kind == "property" and isinstance(function, FunctionValue):
                return self.call_value(function.bound_to(receiver), [], {})
            if found.kind == "contextmanager" and isinstance(function, FunctionValue):
                made = Thing("contextmanager")
                made.fields["function"] = function.bound_to(receiver) if function.owner else function
                return made
        return found

    def _attribute_of_thing(self, value: Thing, name: str) -> Value:
        found = self.attribute_of_module(value, name) if value.kind == "module" else value.fields.get(name)
        if found is not None:
            return self.refine(found)
        if value.cls is not None:
            inherited = value.cls.find(name)
            if inherited is not None:
                return self.bind(inherited, value)
            if name == "__class__":
                return value.cls
            if name == "__dict__" and value.kind != "module":
                return self._attributes_of(value)
            getter = value.cls.find("__getattr__") if not value.kind else None
            if isinstance(getter, FunctionValue) and (value, name) not in self._getting:
                return self._missing(value, name, getter)
        if value.kind == "optimizer" and name == "param_groups" and "params" in value.fields:
            return self._groups_of(value)
        if f"@.{name}" in value.fields:
            return value  # a wrapper, which stands for what it wraps
        if value.kind == "tensor":
            return self.attribute_of_tensor(value, name)
        if value.kind == "super":
            return self.attribute_of_super(value, name)
        if value.kind and self.library.method(value.kind, name) is not None:
            return self.operate(".", (value, Constant(name)), name)
        if value.kind == "dict" and ("item", name) in value.fields:
            # Plain dicts do not offer items as attributes; configuration objects, modelled as dicts, do.
            return self.item(value, Constant(name))
        return self.operate(".", (value, Constant(name)), f"{value.name}.{name}" if value.name else name)

    def _missing(self, value: Thing, name: str, getter: FunctionValue) -> Value:
        """What a class's `__getattr__` returns for an attribute that an object does not have."""
        self._getting.add((value, name))
        try:
            bound = getter.bound_to(value)
            return self.run_frame(self.enter_function(bound, [Constant(name)], {}), bound, None)
        finally:
            self._getting.discard((value, name))

    def _bounds(self, key: Value) -> Iterator[Value]:
        """The bounds of slices in an index that are computed tensors, whose numbers Python reads."""
        for part in [*self.values_in(key), key]:
            operator, operands = (part.operation or ("", ())) if isinstance(part, Thing) else ("", ())
            for bound in operands if operator == "slice" else ():
                made = bound.made if isinstance(bound, Thing) and bound.kind == "tensor" else None
                if made is not None and made.kind == "op":
                    yield bound

    def _groups_of(self, optimizer: Thing) -> Value:
        """The `param_groups` of an optimizer: dicts with the parameters. The options beside them are known
        where the program gives them for a group of an optimizer of its own; schedulers change others."""
        if "@groups" in optimizer.fields:
            return optimizer.fields["@groups"]
        given = optimizer.fields["params"]
        held = self.ordered(given) or self.values_in(given)
        groups = []
        for group in dict.fromkeys(option for item in held for option, _ in options_of(item)):
            if isinstance(group, Thing) and group.kind == "dict":
                is_own = optimizer.cls is not None
                groups.append(self.container("dict"))
                groups[-1].fields.update(
                    {key: item for key, item in group.fields.items() if is_own or key == ("item", "params")}
                )
        if not groups:
            groups.append(self.container("dict"))
            groups[0].fields["item", "params"] = given
        for made in groups:
            made.fields.setdefault("[*]", self.unknown("option"))
            params = made.fields.get(("item", "params"))
            if isinstance(params, Thing) and params.kind == "tensor":
                made.fields["item", "params"] = self.container("list", [params])
        found = optimizer.fields["@groups"] = self.container("list", groups)
        return found

    # -- provided by the part that runs functions

    def enter_function(
        self, value: FunctionValue, arguments: list[Value], keywords: dict[str, Value]
    ) -> Frame:
        raise NotImplementedError

    def run_frame(self, frame: Frame, value: FunctionValue, call: Call | None, on_yield: Any = None) -> Value:
        raise NotImplementedError

    def _parameter_of(self, value: Thing) -> Value:
        raise NotImplementedError

    def _attributes_of(self, value: Thing) -> Thing:
        """`value.__dict__`: what is written into it becomes an attribute."""
        made = self.container("dict")
        made.fields["@attributes of"] = value
        for name, item in value.fields.items():
            if isinstance(name, str) and name[:1] not in "@[":
                made.fields["item", name] = item
        return made

    def set_attribute(self, value: Value, name: str, item: Value) -> None:
        """`value.name = item`."""
        several = isinstance(value, Union)
        for option, _ in options_of(value):
            if isinstance(option, Thing):
                if option.kind == "tensor" or (option.kind == "module" and option.cls is None):
                    self.happen("set", f".{name}", option, {"value": item})
                elif self.is_tensor(item):
                    self.happen("keep", f".{name}", option, {"value": item})
                if option.kind == "tensor" and name == "grad":
                    # `.grad` is not stored: each reading of it makes a new gradient event.
                    continue
                if option.kind == "dict" and name == "__dict__":
                    continue  # its items become its attributes, which they are here anyway
                key = ("item", name) if option.kind == "dict" else name
                before = option.fields.get(key)
                written = either(before, item) if several and before is not None else item
                self.store.write(option.fields, key, written)
            elif isinstance(option, Symbol):
                self.happen("set", self.library.canonical(f"{option.name}.{name}"), option, {"value": item})
            elif isinstance(option, ModuleValue):
                self.run_module(option.file)
                self.store.write(self.frames[option.file].names, name, item)
            elif isinstance(option, ClassValue):
                self.store.write(option.namespace, name, item)
            elif isinstance(option, FunctionValue):
                self.happen("set", f".{name}", option, {"value": item})

    def global_of(self, module: ModuleValue, name: str) -> Value:
        """A variable of a file of the project."""
        self.run_module(module.file)
        frame = self.frames[module.file]
        found = frame.names.get(name)
        if found is not None:
            return self.refine(found)
        items = module.file.imports(module.file.tables.module).get(name)
        if items is not None and (module.file, name) not in self._importing:
            self._importing.add((module.file, name))
            try:
                return either(*dict.fromkeys(self.import_(module.file, item.qualified) for item in items))
            finally:
                self._importing.discard((module.file, name))
        inner = self.project.module(
            module.file, f".{name}" if module.file.path.endswith("__init__.py") else ""
        )
        if inner is not None:
            return ModuleValue(inner)
        starred = self.starred(frame, name)
        if starred is not None:
            return starred
        found = frame.names[name] = self.unknown(name)
        return found


def _gives_pairs(value: Value) -> bool:
    """Whether a value may be the pairs of keys and values of which `dict` makes a dict."""
    return isinstance(value, Thing) and value.kind in ("parameters", "zip", "list")
