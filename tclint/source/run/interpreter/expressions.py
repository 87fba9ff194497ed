"""Evaluates expressions."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterator
from typing import Any

from tclint.source.project.imports import is_name_of
from tclint.source.run.conditions import truth
from tclint.source.run.files import File
from tclint.source.run.interpreter.texts import Texts
from tclint.source.run.values import (
    FALSE,
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
    either,
    join,
    options_of,
)
from tclint.source.syntax.tables import (
    Attribute,
    Call,
    Choice,
    Closure,
    Collection,
    Expression,
    Literal,
    Name,
    Operation,
    Other,
    Subscript,
)

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _joined(left: str, right: str) -> str:
    return "".join((left, right))


_JOINS: dict[str, Callable[[str, str], str]] = {"+": _joined, "/": os.path.join}
"""Operators on texts; `/` joins paths."""
_COMMAND_LINE = Constant("command line")
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in"})
_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
_LARGEST_EXPONENT = 64
_LARGEST_TEXT = 200


class Expressions(Texts):
    """Turns expressions into values."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._evaluators: dict[type, Callable[[Any], Value]] = {
            Literal: lambda expression: Constant(expression.value),
            Name: self._name,
            Attribute: lambda expression: self.attribute(self.evaluate(expression.value), expression.name),
            Call: self._call,
            Choice: self._choose,
            Operation: self._operation,
            Subscript: self._subscript,
            Collection: self._collection,
            Closure: self._closure,
            Other: self._other,
        }

    def evaluate(self, expression: Expression) -> Value:
        """The value of an expression. Calls in it that have run already are not run again."""
        return self._evaluators[type(expression)](expression)

    # -- names

    def _name(self, expression: Name) -> Value:
        dotted = expression.dotted
        if "." not in dotted:
            return self.lookup(dotted)
        parts = dotted.split(".")
        value = self.lookup(parts[0])
        for part in parts[1:]:
            value = self.attribute(value, part)
        return value

    def lookup(self, name: str) -> Value:
        """The value of a name without dots."""
        frame: Frame | None = self.frame
        while frame is not None:
            # A method does not see its class's names; a class body does see its own.
            if frame.function.kind != "class" or frame is self.frame:
                found = frame.names.get(name)
                if found is not None:
                    return self.refine(found) if isinstance(found, Union) else found
                if frame.function.imports and name in frame.file.imports(frame.function):
                    return self._imported(frame, name)
            if frame.outer is None:
                break
            frame = frame.outer
        assert frame is not None
        if name == "__name__":
            return Constant(frame.file.name)
        if name == "__file__":
            return Constant(frame.file.path)
        if name in _BUILTINS:
            return Symbol(f"builtins.{name}")
        found = self.starred(frame, name)
        if found is None:
            found = self.unknown(name)
        frame.names[name] = found
        return found

    def _imported(self, frame: Frame, name: str) -> Value:
        items = frame.file.imports(frame.function)[name]
        values = [self.import_(frame.file, item.qualified) for item in items]
        found = values[0] if len(values) == 1 else either(*dict.fromkeys(values))
        frame.names[name] = found
        return found

    def starred(self, frame: Frame, name: str, seen: frozenset[File] = frozenset()) -> Value | None:
        """The value of a name that `from module import *` defines; None if no such import does.

        Args:
            seen: the files that led here: packages and their modules may import each other so.
        """
        if name[:1] == "_":
            return None
        seen |= {frame.file}
        for item in frame.file.imports(frame.file.tables.module).get("*", ()):
            if not self.project.may_define(frame.file, item.qualified, name):
                continue
            file = self.project.module(frame.file, item.qualified)
            if file is not None:
                self.run_module(file)
                inner_frame = self.frames[file]
                if name in inner_frame.names or name in file.imports(file.tables.module):
                    return self.attribute(ModuleValue(file), name)
                inner = None if file in seen else self.starred(inner_frame, name, seen)
                if inner is not None:
                    return inner
            elif name in self.library.stars.get(item.qualified, ()):
                return self.symbol(f"{item.qualified}.{name}")
        return None

    def import_(self, file: File, qualified: str) -> Value:
        """The value that importing a full name gives in a file: a file of the project, something in it, or a
        library's name."""
        if qualified in self.library.own:
            return self.symbol(qualified)
        found = self.project.module(file, qualified)
        if found is not None:
            return ModuleValue(found)
        module, _, name = qualified.rpartition(".")
        if qualified.startswith(".") and not module.strip("."):
            module = qualified[: len(qualified) - len(qualified.lstrip("."))]
        found = self.project.module(file, module) if module else None
        if found is None and is_name_of(file.path, module):
            own = self.frames.get(file)
            found = file if own is not None and name in own.names else None
        if found is not None:
            return self.attribute(ModuleValue(found), name)
        return self.symbol(qualified.lstrip("."))

    def symbol(self, name: str) -> Value:
        """The value of a library's name: the definition in the library's summary, a constant, or a symbol."""
        name = self.library.canonical(name)
        if name == "sys.argv" and (passed := self.arguments()) is not None:
            return passed
        if name in self.library.values:
            return Constant(self.library.values[name])
        program = self.library.program(name)
        if program is not None:
            file = self.summary(program)
            last = name.rpartition(".")[2]
            inside = self.frames[file].names
            if last in inside and name not in program.names:
                return inside[last]
        return Symbol(name)

    # -- operators

    def _operation(self, expression: Operation) -> Value:
        if expression.operator in ("and", "or"):
            return self._logical(expression.operator, [self.evaluate(part) for part in expression.operands])
        operands = tuple(self.evaluate(part) for part in expression.operands)
        if len(operands) == 1:
            return self.unary(expression.operator, operands[0])
        return self.binary(expression.operator, operands[0], operands[1])

    def _logical(self, symbol: str, operands: list[Value]) -> Value:
        decisive = symbol == "or"
        left: list[Value] = []
        for position, operand in enumerate(operands):
            known = truth(operand, self.path)
            if known is decisive or (position == len(operands) - 1 and not left):
                left.append(operand)
                break
            if known is None or position == len(operands) - 1:
                left.append(operand)
        if len(left) == 1:
            return left[0]
        return self.operate(symbol, tuple(left))

    def unary(self, symbol: str, operand: Value) -> Value:
        if symbol == "not":
            known = truth(operand, self.path)
            if known is not None:
                return FALSE if known else TRUE
            self.looks_at(operand)
            return self.operate("not", (operand,))
        if isinstance(operand, Constant) and isinstance(operand.value, int | float) and symbol == "neg":
            return Constant(-operand.value)
        if self.is_tensor(operand):
            return self.tensor("op", symbol, operand, {})
        return self.operate(symbol, (operand,))

    def binary(self, symbol: str, left: Value, right: Value) -> Value:
        """The result of a binary operator."""
        if symbol in ("is", "is not", "==", "!="):
            same = self._same(left, right)
            if same is not None:
                return TRUE if same is (symbol in ("is", "==")) else FALSE
        if symbol == "@" or self.is_tensor(left) or self.is_tensor(right):
            if symbol == "%" and isinstance(left, Constant) and isinstance(left.value, str):
                return self._filled_in(left, right)
            if symbol in ("is", "is not"):
                return FALSE if symbol == "is" else TRUE
            if symbol in ("in", "not in"):
                # A text is a key of a dict of tensors; sets and dicts look tensors up by identity.
                if self.text_of(left) is None and not self._is_hashed(right):
                    # Python compares item by item, and each comparison is read.
                    self.wait("in", self.tensor("op", "==", left, {"other": right}))
                return self.operate(symbol, (left, right))
            return self.tensor("op", symbol, left, {"other": right})
        if isinstance(left, Union) or isinstance(right, Union):
            combined = self._of_constants(symbol, left, right)
            if combined is None and symbol in _JOINS:
                combined = self.computed(symbol, (left, right), _JOINS[symbol])
            if combined is not None:
                return combined
        elif isinstance(left, Constant) and isinstance(right, Constant):
            return self._compute(symbol, left.value, right.value)
        if symbol == "+" and self.is_listed(left) and self.is_listed(right):
            return self.concatenated(left, right)
        if symbol == "|" and isinstance(left, Thing) and left.kind == "dict":
            merged = self.container("dict")
            self.update(merged, left)
            self.update(merged, right)
            return merged
        if symbol == "*" and (self.is_sequence(left) or self.is_sequence(right)):
            return self.repeated(left, right) if self.is_sequence(left) else self.repeated(right, left)
        if symbol == "%" and isinstance(left, Constant) and isinstance(left.value, str):
            return self._filled_in(left, right)
        if symbol == "%" and right == Constant(1):
            return Constant(0)
        if symbol in ("in", "not in"):
            known = self.holds(right, left)
            if known is not None:
                return TRUE if known is (symbol == "in") else FALSE
        return self.operate(symbol, (left, right))

    def _filled_in(self, text: Constant, given: Value) -> Value:
        """`"..." % given`."""
        self.wait("format", given)
        items = self.exact_items(given) if self.is_sequence(given) else [given]
        found = self.computed("%", (text, *items), lambda head, *rest: head % rest) if items else None
        return found or self.unknown("text")

    def _is_hashed(self, value: Value) -> bool:
        return all(
            isinstance(option, Thing) and option.kind in ("set", "dict") for option, _ in options_of(value)
        )

    def _same(self, left: Value, right: Value) -> bool | None:
        """Whether two values are the same; None if that is unknown."""
        if isinstance(left, Constant) and isinstance(right, Constant):
            if left.value is None or right.value is None:
                return left.value is right.value
            return bool(left.value == right.value)
        if isinstance(left, Symbol) and isinstance(right, Symbol):
            return left.name == right.name
        if isinstance(right, Constant) and not isinstance(left, Constant):
            left, right = right, left
        if isinstance(left, Constant) and left.value is None:
            if isinstance(right, Thing):
                # A command line passes text: only its default makes an option None.
                is_text = right.fields.get("@chosen by") == _COMMAND_LINE
                return None if right.is_unknown and not is_text else False
            if isinstance(right, FunctionValue | ClassValue | ModuleValue | Symbol):
                return False
            known = {self._same(left, option.value) for option in options_of(right)}
            return known.pop() if len(known) == 1 else None
        if isinstance(left, Constant) and isinstance(right, Symbol):
            return False
        if left is right and isinstance(left, Thing):
            return True
        return None

    def _of_constants(self, symbol: str, left: Value, right: Value) -> Value | None:
        """The union of the results for all alternatives of both operands; None if one cannot be computed."""
        ways = []
        for one, guard in options_of(left):
            for other, more in options_of(right):
                if isinstance(one, Constant) and isinstance(other, Constant):
                    ways.append(Option(self._compute(symbol, one.value, other.value), guard + more))
                elif symbol in ("==", "!=") and self._same(one, other) is not None:
                    same = self._same(one, other) is (symbol == "==")
                    ways.append(Option(TRUE if same else FALSE, guard + more))
                else:
                    return None
        if symbol in _COMPARISONS and len({option.value for option in ways}) > 1:
            # The comparison is kept as a test, which tells the alternatives apart later.
            return None
        return join(ways)

    def _compute(self, symbol: str, left: Any, right: Any) -> Value:
        try:
            if symbol == "**":
                small = isinstance(right, int | float) and abs(right) <= _LARGEST_EXPONENT
                return Constant(left**right) if small else self.unknown()
            if symbol in ("is", "is not"):
                return Constant((left is right) is (symbol == "is"))
            if symbol in ("in", "not in"):
                return Constant((left in right) is (symbol == "in"))
            compute = _ARITHMETIC.get(symbol)
            if compute is None:
                return self.operate(symbol, (Constant(left), Constant(right)))
            if isinstance(left, str) and symbol == "/":
                return Constant(os.path.join(left, right))
            if isinstance(left, str) and symbol not in ("==", "!=", "+", "*"):
                return self.unknown("text")
            if symbol == "*" and isinstance(left, str | bytes) and right * len(left) > _LARGEST_TEXT:
                return self.unknown("text")
            found = compute(left, right)
            if isinstance(found, str) and len(found) > _LARGEST_TEXT:
                return self.unknown("text")
            if isinstance(found, complex) or (isinstance(found, float) and math.isnan(found)):
                return self.unknown()
            return Constant(found)
        except (ArithmeticError, TypeError, ValueError):
            return self.unknown()

    def _choose(self, expression: Choice) -> Value:
        condition = self.evaluate(expression.condition)
        return self.chosen(
            condition, lambda: self.evaluate(expression.first), lambda: self.evaluate(expression.second)
        )

    # -- displays and parts

    def _subscript(self, expression: Subscript) -> Value:
        value = self.evaluate(expression.value)
        key = self.evaluate(expression.key)
        return self.each(value, lambda inner: self.item(inner, key))

    def _collection(self, expression: Collection) -> Value:
        if expression.kind == "dict":
            made = self.container("dict")
            for key, item in zip(expression.keys, expression.items, strict=True):
                value = self.evaluate(item)
                if key is None:
                    self.update(made, value)
                else:
                    self.set_item(made, self.evaluate(key), value)
            return made
        items: list[Value] = []
        rest: list[Value] = []
        is_exact = True
        for item in expression.items:
            if isinstance(item, Other) and item.kind == "star":
                inner = self.evaluate(item.parts[0])
                known = self.ordered(inner)
                if known is None:
                    rest.append(self.element(inner))
                else:
                    items.extend(known)
                    is_exact &= self.exact_items(inner) is not None
            else:
                items.append(self.evaluate(item))
        if rest:
            return self.container(expression.kind, None, either(*items, *rest))
        return self.container(expression.kind, items, is_exact=is_exact)

    def _closure(self, expression: Closure) -> Value:
        function = self.frame.file.tables.functions[expression.function]
        return FunctionValue(self.frame.file, function, self.frame)

    def _other(self, expression: Other) -> Value:
        kind, parts = expression.kind, expression.parts
        if kind == "comprehension":
            found = self.frame.results.get(("each", expression.block))
            return found if found is not None else self.container("list")
        if kind == "await":
            return self.evaluate(parts[0])
        if kind == "enter":
            return self.entered(self.evaluate(parts[0]))
        if kind == "string":
            values = []
            for part in parts:
                values.append(self.evaluate(part))
                self.wait("format", values[-1])
            found = self.computed("text", values, lambda *texts: "".join(map(str, texts))) if parts else None
            return found or (self.operate("text", tuple(values)) if parts else Constant(""))
        if kind == "slice":
            return self.operate("slice", tuple(self.evaluate(part) for part in parts))
        if kind == "iterate":
            return self.element(self.evaluate(parts[0]))
        if kind == "pair":
            pair = self.container("dict")
            self.set_item(pair, self.evaluate(parts[0]), self.evaluate(parts[1]))
            return pair
        if kind == "yield":
            return self.unknown("sent")
        return self.operate(kind, tuple(self.evaluate(part) for part in parts)) if parts else self.unknown()

    # -- what other parts of the interpreter do

    def _call(self, expression: Call) -> Value:
        raise NotImplementedError

    def summary(self, program: Any) -> File:
        raise NotImplementedError

    def entered(self, value: Value) -> Value:
        raise NotImplementedError

    def looks_at(self, value: Value) -> None:
        """Note that the program tests a value; testing a tensor on a GPU waits for it."""
        for leaf in self._leaves(value):
            if self.is_tensor(leaf):
                self.wait("bool", leaf)

    def _leaves(self, value: Value) -> Iterator[Value]:
        for option, _ in options_of(value):
            if isinstance(option, Thing) and option.operation is not None:
                operation, operands = option.operation
                if operation in ("and", "or", "not"):
                    for operand in operands:
                        yield from self._leaves(operand)
                    continue
            yield option

    def chosen(self, condition: Value, first: Callable[[], Value], second: Callable[[], Value]) -> Value:
        """The value of `first if condition else second`."""
        from tclint.source.run.conditions import atoms

        known = truth(condition, self.path)
        if known is not None:
            return first() if known else second()
        self.looks_at(condition)
        return self.alternatives([(atoms(condition, True), first), (atoms(condition, False), second)])
