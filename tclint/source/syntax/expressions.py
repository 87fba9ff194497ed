"""From libcst expressions to the tuples of tables.py, noting calls as events on the way."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import libcst as cst

from tclint.source.syntax.scopes import Builder
from tclint.source.syntax.tables import (
    Argument,
    Attribute,
    BlockKind,
    Call,
    CallEvent,
    Choice,
    Closure,
    Collection,
    Expression,
    Literal,
    Name,
    Operation,
    Other,
    Parameter,
    Return,
    Subscript,
)

_IDENTIFIER_STRING = re.compile(r"[A-Za-z_][\w.\-]{0,60}")

OPERATORS: dict[type[cst.CSTNode], str] = {
    cst.Add: "+",
    cst.Subtract: "-",
    cst.Multiply: "*",
    cst.Divide: "/",
    cst.FloorDivide: "//",
    cst.Modulo: "%",
    cst.Power: "**",
    cst.MatrixMultiply: "@",
    cst.LeftShift: "<<",
    cst.RightShift: ">>",
    cst.BitAnd: "&",
    cst.BitOr: "|",
    cst.BitXor: "^",
    cst.And: "and",
    cst.Or: "or",
    cst.Not: "not",
    cst.Minus: "neg",
    cst.Plus: "pos",
    cst.BitInvert: "~",
    cst.Equal: "==",
    cst.NotEqual: "!=",
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
    cst.Is: "is",
    cst.IsNot: "is not",
    cst.In: "in",
    cst.NotIn: "not in",
    cst.AddAssign: "+",
    cst.SubtractAssign: "-",
    cst.MultiplyAssign: "*",
    cst.DivideAssign: "/",
    cst.FloorDivideAssign: "//",
    cst.ModuloAssign: "%",
    cst.PowerAssign: "**",
    cst.MatrixMultiplyAssign: "@",
    cst.LeftShiftAssign: "<<",
    cst.RightShiftAssign: ">>",
    cst.BitAndAssign: "&",
    cst.BitOrAssign: "|",
    cst.BitXorAssign: "^",
}

_WITHOUT_CALLS = (cst.Name, cst.Integer, cst.Float, cst.SimpleString)

_CONSTANT_NAMES: dict[str, Literal] = {"True": Literal(True), "False": Literal(False), "None": Literal(None)}


class ExpressionReader(Builder):
    """Reads expressions and binds their values to targets."""

    def _parameters(self, node: cst.Parameters) -> tuple[Parameter, ...]:
        found: list[Parameter] = []

        def add(parameter: cst.Param, star: str = "") -> None:
            self.identifiers.add(parameter.name.value)
            found.append(
                Parameter(
                    parameter.name.value,
                    self._read(parameter.default) if parameter.default is not None else None,
                    self._read(parameter.annotation.annotation) if parameter.annotation is not None else None,
                    star,
                )
            )

        for parameter in (*node.posonly_params, *node.params):
            add(parameter)
        if isinstance(node.star_arg, cst.Param):
            add(node.star_arg, "*")
        for parameter in node.kwonly_params:
            add(parameter)
        if node.star_kwarg is not None:
            add(node.star_kwarg, "**")
        return tuple(found)

    def _bind(self, target: cst.CSTNode, value: Expression, node: cst.CSTNode) -> None:
        """Assign to a target, pairing `a, b = x, y` item by item."""
        if isinstance(target, cst.Tuple | cst.List):
            elements = target.elements
            starred = any(isinstance(element, cst.StarredElement) for element in elements)
            if (
                isinstance(value, Collection)
                and value.kind in ("tuple", "list")
                and len(value.items) == len(elements)
                and not starred
            ):
                for element, item in zip(elements, value.items, strict=True):
                    self._bind(element.value, item, node)
                return
            names = tuple(_target_names(target))
            self.identifiers.update(names)
            self._assigned(names, value, node, unpacked=True, into=self._read(target))
            return
        written = self._read(target)
        if isinstance(written, Name):
            self._assigned((written.dotted,), value, node)
        elif isinstance(written, Subscript | Attribute):
            # `losses["a"] = x` adds to what `losses` holds.
            self._assigned((base_name(written),), value, node, operator="[]", into=written)

    def _read(self, node: cst.CSTNode) -> Expression:
        handler = self._expression_handlers.get(type(node))
        if handler is not None:
            return handler(self, node)
        return Other(
            type(node).__name__.lower(),
            tuple(self._read(child) for child in node.children if isinstance(child, cst.BaseExpression)),
        )

    def _name(self, node: cst.Name) -> Expression:
        value = node.value
        constant = _CONSTANT_NAMES.get(value)
        if constant is not None:
            return constant
        self.identifiers.add(value)
        return Name(value)

    def _attribute(self, node: cst.Attribute) -> Expression:
        value = self._read(node.value)
        name = node.attr.value
        self.identifiers.add(name)
        if isinstance(value, Name):
            return Name(f"{value.dotted}.{name}")
        return Attribute(value, name)

    def _call(self, node: cst.Call) -> Expression:
        function = self._read(node.func)
        arguments = tuple(self._argument(argument) for argument in node.args)
        call = Call(function, arguments, self._node_id(node))
        self.scope.events.append(CallEvent(call, self.scope.block))
        return call

    def _argument(self, node: cst.Arg) -> Argument:
        keyword = node.keyword.value if node.keyword is not None else ""
        if keyword:
            self.identifiers.add(keyword)
        return Argument(self._read(node.value), keyword, node.star)

    def _string(self, node: cst.SimpleString) -> Expression:
        text, quote = node.value, node.value[0]
        value: Any
        if quote in "\"'" and "\\" not in text and "\r" not in text:  # no prefix, no escapes: as most are
            value = text[3:-3] if text.startswith(quote * 3) else text[1:-1]
        else:
            try:
                value = ast.literal_eval(text)
            except (ValueError, SyntaxError):
                return Other("string")
        if isinstance(value, str) and _IDENTIFIER_STRING.fullmatch(value):
            self.identifiers.add(value)
        return Literal(value)

    def _concatenated(self, node: cst.ConcatenatedString) -> Expression:
        left, right = self._read(node.left), self._read(node.right)
        if isinstance(left, Literal) and isinstance(right, Literal):
            try:
                return Literal(left.value + right.value)  # type: ignore[operator]
            except TypeError:
                pass
        return Other("string", (left, right))

    def _formatted(self, node: cst.FormattedString) -> Expression:
        return Other(
            "string", tuple(found for part in node.parts for found in self._parts_of_text(part, node))
        )

    def _parts_of_text(
        self, part: cst.BaseFormattedStringContent, string: cst.FormattedString
    ) -> Iterator[Expression]:
        if isinstance(part, cst.FormattedStringExpression):
            yield self._read(part.expression)
            if part.format_spec is not None or part.conversion is not None:
                yield Other("format")  # what it makes of the value is not known
            return
        assert isinstance(part, cst.FormattedStringText)
        text = part.value.replace("{{", "{").replace("}}", "}")
        if "\\" in text and "r" not in string.prefix.lower():
            try:
                text = ast.literal_eval(f'"""{text}"""')
            except (ValueError, SyntaxError):
                yield Other("format")
        yield Literal(text)

    def _number(self, node: cst.Integer | cst.Float | cst.Imaginary) -> Expression:
        text = node.value
        try:
            # Compiling an expression takes a hundred times as long as reading a plain number.
            return Literal(int(text) if text.isdecimal() and text[0] != "0" else ast.literal_eval(text))
        except (ValueError, SyntaxError):
            return Other("number")

    def _binary(self, node: cst.BinaryOperation | cst.BooleanOperation) -> Expression:
        return Operation(
            OPERATORS.get(type(node.operator), "?"), (self._read(node.left), self._read(node.right))
        )

    def _unary(self, node: cst.UnaryOperation) -> Expression:
        return Operation(OPERATORS.get(type(node.operator), "?"), (self._read(node.expression),))

    def _comparison(self, node: cst.Comparison) -> Expression:
        left = self._read(node.left)
        found: list[Expression] = []
        for part in node.comparisons:
            right = self._read(part.comparator)
            found.append(Operation(OPERATORS.get(type(part.operator), "?"), (left, right)))
            left = right
        return found[0] if len(found) == 1 else Operation("and", tuple(found))

    def _if_exp(self, node: cst.IfExp) -> Expression:
        condition = self._read(node.test)
        statement = self._new_statement()
        first = self._branch("if", node.body, condition, statement)
        return Choice(condition, first, self._branch("else", node.orelse, condition, statement))

    def _branch(
        self, kind: BlockKind, node: cst.BaseExpression, condition: Expression, statement: int
    ) -> Expression:
        """Read one side of a conditional expression; its calls run under the condition."""
        if isinstance(node, _WITHOUT_CALLS):
            return self._read(node)
        read: list[Expression] = []
        self._in_block(kind, node, lambda: read.append(self._read(node)), statement, condition=condition)
        return read[0]

    def _subscript(self, node: cst.Subscript) -> Expression:
        value = self._read(node.value)
        indices = tuple(self._read(element.slice) for element in node.slice)
        is_tuple = len(indices) > 1 or isinstance(node.slice[-1].comma, cst.Comma)  # x[0,]
        return Subscript(value, Collection("tuple", indices) if is_tuple else indices[0])

    def _slice(self, node: cst.Slice) -> Expression:
        bounds = (node.lower, node.upper, node.step)
        return Other(
            "slice", tuple(self._read(bound) if bound is not None else Literal(None) for bound in bounds)
        )

    def _collection(self, kind: Any, node: cst.Tuple | cst.List | cst.Set) -> Expression:
        return Collection(
            kind,
            tuple(
                Other("star", (self._read(element.value),))
                if isinstance(element, cst.StarredElement)
                else self._read(element.value)
                for element in node.elements
            ),
        )

    def _dict(self, node: cst.Dict) -> Expression:
        items: list[Expression] = []
        keys: list[Expression | None] = []
        for element in node.elements:
            keys.append(self._read(element.key) if isinstance(element, cst.DictElement) else None)
            items.append(self._read(element.value))
        return Collection("dict", tuple(items), tuple(keys))

    def _lambda(self, node: cst.Lambda) -> Expression:
        # Its body runs when it is called, so its calls belong to a scope of their own.
        parameters = self._parameters(node.params)
        scope = self._enter("lambda", "<lambda>", node)
        scope.parameters = parameters
        value = self._read(node.body)
        scope.events.append(Return(value, 0, scope.node_id))
        self._leave(scope)
        return Closure(scope.index)

    def _comprehension(self, node: Any) -> Expression:
        is_dict = isinstance(node, cst.DictComp)
        parts: list[Expression] = []
        block = self._loops(node.for_in, (node.key, node.value) if is_dict else (node.elt,), parts)
        return Other("comprehension", tuple(parts), block)

    def _loops(
        self, part: cst.CompFor, elements: tuple[cst.BaseExpression, ...], parts: list[Expression]
    ) -> int:
        """Read the loops of a comprehension from one on; return the index of the block that holds its
        elements.

        Args:
            parts: gets what the loops read.
        """
        iterated = self._read(part.iter)
        block = -1

        def body() -> None:
            nonlocal block
            self._bind(part.target, Other("iterate", (iterated,)), part.target)
            block = self._filtered(part, elements, parts, part.ifs)

        parts.append(iterated)
        self._in_block("each", part, body, self._new_statement())
        return block

    def _filtered(
        self,
        part: cst.CompFor,
        elements: tuple[cst.BaseExpression, ...],
        parts: list[Expression],
        tests: Sequence[cst.CompIf],
    ) -> int:
        """Read the body of a comprehension's loop: its tests, then an inner loop or the elements."""
        if not tests:
            if part.inner_for_in is not None:
                return self._loops(part.inner_for_in, elements, parts)
            read = tuple(self._read(element) for element in elements)
            parts[:0] = read
            return self._element_of(Other("pair", read) if len(read) > 1 else read[0])
        condition = self._read(tests[0].test)
        parts.append(condition)
        block = -1

        def body() -> None:
            nonlocal block
            block = self._filtered(part, elements, parts, tests[1:])

        self._in_block("if", tests[0], body, self._new_statement(), condition=condition)
        return block

    def _element_of(self, element: Expression) -> int:
        """Store the element of a comprehension with its innermost loop; return the index of that block."""
        blocks = self.scope.blocks
        index = self.scope.block
        while blocks[index].kind != "each":
            index = blocks[index].parent
        blocks[index] = blocks[index]._replace(condition=element)
        return index

    def _named_expr(self, node: cst.NamedExpr) -> Expression:
        value = self._read(node.value)
        self._bind(node.target, value, node)
        return value

    def _yield(self, node: cst.Yield) -> Expression:
        value: Expression = Literal(None)
        if isinstance(node.value, cst.From):
            value = Other("iterate", (self._read(node.value.item),))
        elif node.value is not None:
            value = self._read(node.value)
        self.scope.events.append(Return(value, self.scope.block, self._node_id(node), is_yield=True))
        return Other("yield", (value,))

    _expression_handlers: ClassVar[dict[type, Callable[[Any, Any], Expression]]] = {
        cst.Name: _name,
        cst.Attribute: _attribute,
        cst.Call: _call,
        cst.SimpleString: _string,
        cst.ConcatenatedString: _concatenated,
        cst.FormattedString: _formatted,
        cst.Integer: _number,
        cst.Float: _number,
        cst.Imaginary: _number,
        cst.BinaryOperation: _binary,
        cst.BooleanOperation: _binary,
        cst.UnaryOperation: _unary,
        cst.Comparison: _comparison,
        cst.IfExp: _if_exp,
        cst.Subscript: _subscript,
        cst.Tuple: lambda self, node: self._collection("tuple", node),
        cst.List: lambda self, node: self._collection("list", node),
        cst.Set: lambda self, node: self._collection("set", node),
        cst.Dict: _dict,
        cst.Lambda: _lambda,
        cst.GeneratorExp: _comprehension,
        cst.ListComp: _comprehension,
        cst.SetComp: _comprehension,
        cst.DictComp: _comprehension,
        cst.NamedExpr: _named_expr,
        cst.Await: lambda self, node: Other("await", (self._read(node.expression),)),
        cst.Yield: _yield,
        cst.Ellipsis: lambda *_: Literal(...),
        cst.Slice: _slice,
        cst.Index: lambda self, node: self._read(node.value),
    }
    """Functions, not bound methods: a reader in a cycle would keep the tree until it is collected."""


def dotted_name(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted_name(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return ""


def base_name(expression: Expression) -> str:
    """The name at the root of an expression: `losses` for `losses["a"][0]`; '' if there is none."""
    while isinstance(expression, Subscript | Attribute):
        expression = expression.value
    return expression.dotted if isinstance(expression, Name) else ""


def _target_names(node: cst.CSTNode) -> list[str]:
    if isinstance(node, cst.Tuple | cst.List):
        return [name for element in node.elements for name in _target_names(element.value)]
    name = dotted_name(node)
    return [name] if name else []
