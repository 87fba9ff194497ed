"""Definitions of functions and classes, and assignments."""

from __future__ import annotations

from itertools import zip_longest

from tclint.source.run.interpreter.calls import Calls
from tclint.source.run.values import (
    NONE,
    ClassValue,
    Frame,
    FunctionValue,
    Symbol,
    Thing,
    Value,
    either,
    options_of,
)
from tclint.source.syntax.tables import (
    Assignment,
    Attribute,
    Call,
    Collection,
    Expression,
    Function,
    Name,
    Other,
    Subscript,
)


def _as_method(made: list[FunctionValue], owner: ClassValue | None) -> FunctionValue:
    """The function that a decorator returned, in the class body where it is defined.

    Args:
        made: what it may have returned; where contexts alone differ, as in
            `(torch.inference_mode if is_new else torch.no_grad)()(function)`, each is a union of theirs.
    """
    first = made[0]
    contexts = [item.regions for item in made if item.function is first.function]
    regions = tuple(either(*together) for together in zip_longest(*contexts, fillvalue=NONE))
    return FunctionValue(first.file, first.function, first.frame, owner, None, regions)


class Assignments(Calls):
    """Gives names their values."""

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
                return value.within(decorator) if isinstance(value, FunctionValue) else value
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
            if isinstance(made_by, ClassValue):
                return made_by
            functions = [item for item, _ in options_of(made_by) if isinstance(item, FunctionValue)]
            if functions and isinstance(value, FunctionValue):
                return _as_method(functions, value.owner)
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
