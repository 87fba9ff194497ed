"""The methods of Python's containers and texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tclint.source.run.interpreter.launched import Launched
from tclint.source.run.values import (
    NONE,
    TRUE,
    Constant,
    Option,
    Thing,
    Union,
    Value,
    constant_of,
    either,
    join,
    options_of,
)
from tclint.source.syntax.tables import Call

Method = Callable[[Thing, list[Value], dict[str, Value], Call], Value]


_READS_FILE = frozenset({"open", "read_bytes", "read_text"})
"""Methods of a path, which is represented by its text."""


def _formatted(text: str, keys: tuple[str, ...], given: tuple[object, ...]) -> str:
    at = len(given) - len(keys)
    return text.format(*given[:at], **dict(zip(keys, given[at:], strict=True)))


class Methods(Launched):
    """What programs do with lists, dicts, texts and numbers."""

    def native_method(self, receiver: Thing, name: str) -> Method | None:
        found: Method | None = getattr(self, f"_{receiver.kind}_{name}", None) if receiver.kind else None
        return found

    # -- methods of containers

    def _list_append(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        self.add_items(receiver, arguments)
        return NONE

    def _list_extend(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        for argument in arguments:
            self.extend(receiver, argument)
        return NONE

    def _list_insert(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        items, at = self.exact_items(receiver), constant_of(arguments[0]) if arguments else None
        if items is not None and isinstance(at, int):
            self.fill(receiver, [*items[:at], *arguments[1:], *items[at:]])
        else:
            self.disorder(receiver, *arguments[1:])
        return NONE

    def _list_pop(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        items, at = self.exact_items(receiver), constant_of(arguments[0]) if arguments else -1
        if items and isinstance(at, int) and -len(items) <= at < len(items) and not self.loops:
            popped = items.pop(at)
            self.fill(receiver, items)
            return popped
        self.disorder(receiver)
        return self.element(receiver)

    def _list_reverse(
        self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call
    ) -> Value:
        self.disorder(receiver)
        return NONE

    _list_sort = _list_remove = _list_clear = _list_reverse

    def _list_copy(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        return receiver

    def _dict_get(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        default = arguments[1] if len(arguments) > 1 else NONE
        if not arguments:
            return self.unknown()
        key = arguments[0]
        exact = self.exact_items(receiver)
        if exact is not None and isinstance(key, Constant):
            return self.item(receiver, key) if self.holds(receiver, key) else default
        known = [
            self.holds(receiver, option) for option, _ in options_of(key) if isinstance(option, Constant)
        ]
        if known and all(known):
            # What an option chooses by default is there, and what else it may choose is not known.
            return self.item(receiver, key)
        return either(self.item(receiver, key), default)

    def _dict_pop(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        return self._dict_get(receiver, arguments, keywords, call)

    def _dict_setdefault(
        self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call
    ) -> Value:
        if len(arguments) == 2:
            self.set_item(receiver, arguments[0], arguments[1])
        return self.item(receiver, arguments[0]) if arguments else self.unknown()

    def _dict_update(
        self, receiver: Thing, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        for argument in arguments:
            self.update(receiver, argument)
        for key, item in keywords.items():
            self.store.write(receiver.fields, ("item", key), item)
        return NONE

    def _dict_items(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        exact = self.exact_items(receiver)
        if exact is not None:
            pairs = [self.container("tuple", [key, self.item(receiver, key)]) for key in exact]
            return self._of_dict(pairs)
        held = self.values_in(receiver)
        pair = self.container("tuple", [self.unknown("key"), either(*held) if held else self.unknown()])
        return self.container("list", None, pair)

    def _dict_values(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        exact = self.exact_items(receiver)
        if exact is not None:
            return self._of_dict([self.item(receiver, key) for key in exact])
        held = self.values_in(receiver)
        return self.container("list", None, either(*held) if held else self.unknown())

    def _dict_keys(self, receiver: Thing, arguments: list[Value], _: dict[str, Value], call: Call) -> Value:
        exact = self.exact_items(receiver)
        return self._of_dict(exact) if exact is not None else self.container("list", None, self.unknown())

    def _of_dict(self, items: Sequence[Value]) -> Value:
        made = self.container("list", items)
        made.fields["@of dict"] = TRUE
        return made

    # -- what a network gives may be a dict: tensors have no such methods

    def _tensor_items(self, receiver: Thing, _: list[Value], __: dict[str, Value], call: Call) -> Value:
        held = self.tensor("op", "[]", receiver, {})
        return self.container("list", None, self.container("tuple", [self.unknown("key"), held]))

    def _tensor_values(self, receiver: Thing, _: list[Value], __: dict[str, Value], call: Call) -> Value:
        return self.container("list", None, self.tensor("op", "[]", receiver, {}))

    def _tensor_keys(self, receiver: Thing, _: list[Value], __: dict[str, Value], call: Call) -> Value:
        return self.container("list", None, self.unknown("key"))

    # -- text

    def call_constant(
        self, receiver: Value, name: str, arguments: list[Value], keywords: dict[str, Value], call: Call
    ) -> Value:
        """Call a method of a string or a number."""
        if name == "format":
            for item in (*arguments, *keywords.values()):
                self.wait("format", item, call)
            keys = tuple(keywords)
            found_text = self.computed(
                "text",
                (receiver, *arguments, *keywords.values()),
                lambda text, *given: _formatted(text, keys, given),
            )
            return found_text or self.unknown("text")
        if name == "join" and (items := self.exact_items(arguments[0]) if arguments else None) is not None:
            joined = self.computed("text", (receiver, *items), lambda text, *given: text.join(given))
            if joined is not None:
                return joined
        if name in _READS_FILE and isinstance(receiver, Constant) and isinstance(receiver.value, str):
            return self.call_symbol("builtins.open", [receiver, *arguments], keywords, call)
        found = []
        for option, guard in options_of(receiver):
            chosen = self.from_outside("()", (option, Constant(name), *arguments))
            if chosen is not None and receiver is not option:
                found.append(Option(chosen, guard))
                continue
            value = option.value if isinstance(option, Constant) else None
            method = getattr(value, name, None) if isinstance(value, str) else None
            if (
                method is None
                or name in ("join", "format_map")
                or not all(isinstance(item, Constant) for item in arguments)
            ):
                return self.operate("()", (receiver, Constant(name), *arguments), name)
            try:
                result = method(*(item.value for item in arguments))  # type: ignore[attr-defined]
            except (TypeError, ValueError, LookupError):
                return self.unknown()
            if isinstance(result, list | tuple) and isinstance(receiver, Union):
                return self.operate("()", (receiver, Constant(name), *arguments), name)
            if isinstance(result, list | tuple):
                return self.container("list", [Constant(part) for part in result])
            found.append(Option(Constant(result), guard))
        return join(found) if found else self.unknown()
