"""Modules: their parts, and the order in which containers run them."""

from __future__ import annotations

from tclint.source.run.interpreter.python import Python
from tclint.source.run.library import Spec
from tclint.source.run.values import FALSE, NONE, Constant, Option, Thing, Value, either, options_of, root_of
from tclint.source.syntax.tables import Call

_PARAMETERS = frozenset({"weight", "bias"})


class Modules(Python):
    """Operations on modules."""

    def spec_of(self, thing: Thing, name: str) -> Spec | None:
        """The effect of a method of a thing, according to its library class or its kind."""
        if thing.kind == "module":
            bases = (
                (base.name for base in thing.cls.library_bases()) if thing.cls is not None else (thing.name,)
            )
            for base in bases:
                found = self.library.methods.get(base, {}).get(name)
                if found is not None:
                    return found
        found = self.library.method(thing.kind or "unknown", name)
        if found is None and thing.is_unknown and root_of(thing).kind == "module":
            # An attribute of a library's module that has children is a module.
            part = self.library.method("module", name)
            found = part if part is not None and part.returns.startswith("iterator") else None
        return found

    def runs_parts(self, module: Thing) -> bool:
        """Whether a call of a module runs other modules: its class is the project's, or it is a container."""
        if module.cls is not None and module.cls.find("forward") is not None:
            return True
        spec = self.spec_of(module, "()")
        return spec is not None and spec.runs == "items" and module.fields.get("[]") != Constant(0)

    def hold(self, module: Thing, given: dict[str, Value]) -> None:
        """Fill a container of modules from its arguments: modules, or a list or dict of them."""
        items: list[Value] = []
        is_exact = True
        values = [value for key, value in given.items() if key.isdigit() or key == "modules"]
        for value in values:
            if isinstance(value, Thing) and value.kind == "dict":
                for key in self.exact_items(value) or ():
                    item = self.item(value, key)
                    self.store.write(module.fields, str(getattr(key, "value", "")), item)
                    items.append(item)
                continue
            over = value.fields["over"] if isinstance(value, Thing) and value.kind == "star" else value
            known = self.ordered(over)
            if known is not None:
                items.extend(known)
                is_exact &= self.exact_items(over) is not None
            elif over is not value or (isinstance(value, Thing) and value.kind in ("list", "tuple")):
                items.append(either(self.element(over), NONE))
                is_exact = False
            else:
                items.append(value)
        self.fill(module, items, is_exact=is_exact and "*" not in given)

    def run_items(self, module: Thing, value: Value) -> Value:
        """Run the modules of a container one after the other and return the result."""
        items = self.ordered(module)
        if items is None:
            for item in self.values_in(module):
                self.call_value(item, [value], {})
            return self.unknown()
        for item in items:
            value = self._through(item, value)
        return value

    def _through(self, item: Value, value: Value) -> Value:
        ways = [option for option in options_of(item) if option.value != NONE]
        if len(ways) == len(options_of(item)):
            return self.call_value(item, [value], {})
        inner = either(*(option.value for option in ways)) if ways else None
        if inner is None:
            return value
        missing: list[Option] = [option for option in options_of(item) if option.value == NONE]
        return self.alternatives(
            [
                (ways[0].guard, lambda: self.call_value(inner, [value], {})),
                (missing[0].guard, lambda: value),
            ]
        )

    # -- methods

    def _module_append(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        self.add_items(receiver, arguments)
        return receiver

    def _module_extend(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        for argument in arguments:
            self.extend(receiver, argument)
        return receiver

    def _module_insert(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        return self._list_insert(receiver, arguments, keywords, call)

    def _module_add_module(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        given = self.bound(("name", "module"), arguments, keywords)
        module = given.get("module", NONE)
        if "[]" in receiver.fields:
            self.add_items(receiver, [module])
        return self._builtin_setattr([receiver, given.get("name", NONE), module], {}, call)

    _module_register_module = _module_add_module

    def _module_register_buffer(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        given = list(self.bound(("name",), arguments, keywords).values())
        for option, _ in options_of(given[1]) if len(given) > 1 else ():
            if isinstance(option, Thing) and option.kind == "tensor":
                self.store.write(option.fields, "@buffer of", receiver)  # it moves with the module
        return self._builtin_setattr([receiver, *given[:2]], {}, call)

    _module_register_parameter = _module_register_buffer

    def _module_items(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        pairs = [
            self.container("tuple", [self.unknown("name"), item]) for item in self.ordered(receiver) or ()
        ]
        return self.container("list", pairs, is_exact=False)

    def _module_values(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        return self.container("list", self.ordered(receiver), is_exact=False)

    def _state_items(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        """The names and tensors in `model.state_dict()`."""
        pair = self.container("tuple", [self.unknown("key"), self._parameter_of(receiver)])
        return self.container("list", None, pair)

    def _state_values(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        return self.container("list", None, self._parameter_of(receiver))

    # -- attributes

    def layer(self, module: Thing) -> Spec | None:
        """The description of the library's layer that a module is or derives from."""
        found = (self.library.call(name) for name in self._classes(module))
        return next((spec for spec in found if spec is not None), None)

    def _classes(self, module: Thing) -> list[str]:
        """The library class of a module, or the library classes that its class derives from."""
        return [module.name] if module.cls is None else [base.name for base in module.cls.library_bases()]

    def attribute_of_module(self, module: Thing, name: str) -> Value | None:
        """An attribute of a module: an assigned value or an item of a dict of modules; for a library's layer
        also a parameter or an argument of its constructor."""
        found = module.fields.get(name) or module.fields.get(("item", name))
        if name in _PARAMETERS and (found is None or isinstance(found, Constant)):
            spec = self.layer(module)
            if spec is None or not spec.parameters:
                return found
            if found == FALSE:
                return NONE
            found = module.fields.get(f"@{name}")
            if found is None:
                found = module.fields[f"@{name}"] = Thing("tensor", name)
                found.fields["@parameter of"] = module
        elif found is None and module.cls is None:
            spec = self.layer(module)
            if spec is not None and name in spec.defaults:
                return Constant(spec.defaults[name])
        return found

    def part(self, iterator: Thing, module: Thing) -> Value:
        """An item of `module.modules()` and the like: any one of the module's parts."""
        found = module.fields.get("@part")
        if found is None:
            found = Thing("module", "", module.made)
            found.fields["@part of"] = module
            module.fields["@part"] = found
        named = iterator.name.startswith(".named_")
        return self.container("tuple", [self.unknown("name"), found]) if named else found
