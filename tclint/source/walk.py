"""One walk over a libcst tree that fills the tables. Only this module and parse.py know libcst.

The walk dispatches on the class of a node itself instead of using libcst's visitors: those rebuild every
node on the way, which costs more than parsing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from tclint.source.tables import (
    Argument,
    Assignment,
    Attribute,
    Block,
    BlockKind,
    Call,
    CallEvent,
    Choice,
    Closure,
    Collection,
    Definition,
    Event,
    Expression,
    Function,
    Import,
    Jump,
    Literal,
    Name,
    Operation,
    Other,
    Parameter,
    Return,
    Subscript,
    Tables,
    WithItem,
)

_IDENTIFIER_STRING = re.compile(r"[A-Za-z_][\w.\-]{0,60}")

_OPERATORS: dict[type[cst.CSTNode], str] = {
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

_CONSTANT_NAMES: dict[str, Literal] = {"True": Literal(True), "False": Literal(False), "None": Literal(None)}


@dataclass(slots=True)
class _Scope:
    """A Function under construction."""

    index: int
    kind: Any
    name: str
    qualified_name: str
    parent: int
    site: int
    parameters: tuple[Parameter, ...] = ()
    decorators: tuple[Expression, ...] = ()
    bases: tuple[Expression, ...] = ()
    blocks: list[Block] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    outer_names: set[str] = field(default_factory=set)
    block: int = 0

    def frozen(self) -> Function:
        return Function(
            index=self.index,
            kind=self.kind,
            name=self.name,
            qualified_name=self.qualified_name,
            parent=self.parent,
            site=self.site,
            parameters=self.parameters,
            decorators=self.decorators,
            bases=self.bases,
            blocks=tuple(self.blocks),
            events=tuple(self.events),
            imports=tuple(self.imports),
            outer_names=frozenset(self.outer_names),
        )


def walk(module: cst.Module) -> tuple[Tables, list[cst.CSTNode]]:
    """The tables of a module, and the node that each site stands for."""
    walker = _Walker()
    walker.module(module)
    tables = Tables(
        functions=tuple(scope.frozen() for scope in walker.scopes),
        identifiers=frozenset(walker.identifiers),
        sites=len(walker.nodes),
    )
    return tables, walker.nodes


class _Walker:
    def __init__(self) -> None:
        self.scopes: list[_Scope] = []
        self.nodes: list[cst.CSTNode] = []
        self.identifiers: set[str] = set()
        self.scope: _Scope = None  # type: ignore[assignment]  # set by the first _enter
        self.statements = 0
        self._statement_handlers: dict[type, Callable[[Any], None]] = {
            cst.SimpleStatementLine: self._simple_line,
            cst.SimpleStatementSuite: self._simple_line,
            cst.If: self._if,
            cst.For: self._for,
            cst.While: self._while,
            cst.With: self._with,
            cst.Try: self._try,
            cst.TryStar: self._try,
            cst.FunctionDef: self._function,
            cst.ClassDef: self._class,
            cst.Match: self._match,
            cst.Expr: self._expr,
            cst.Assign: self._assign,
            cst.AnnAssign: self._ann_assign,
            cst.AugAssign: self._aug_assign,
            cst.Return: self._return,
            cst.Import: self._import,
            cst.ImportFrom: self._import_from,
            cst.Raise: self._raise,
            cst.Break: lambda _: self._jump("break"),
            cst.Continue: lambda _: self._jump("continue"),
            cst.Global: self._global,
            cst.Nonlocal: self._global,
            cst.Assert: self._assert,
            cst.Del: self._del,
        }
        self._expression_handlers: dict[type, Callable[[Any], Expression]] = {
            cst.Name: self._name,
            cst.Attribute: self._attribute,
            cst.Call: self._call,
            cst.SimpleString: self._string,
            cst.ConcatenatedString: self._concatenated,
            cst.FormattedString: self._formatted,
            cst.Integer: self._number,
            cst.Float: self._number,
            cst.Imaginary: self._number,
            cst.BinaryOperation: self._binary,
            cst.BooleanOperation: self._binary,
            cst.UnaryOperation: self._unary,
            cst.Comparison: self._comparison,
            cst.IfExp: self._if_exp,
            cst.Subscript: self._subscript,
            cst.Tuple: lambda node: self._collection("tuple", node),
            cst.List: lambda node: self._collection("list", node),
            cst.Set: lambda node: self._collection("set", node),
            cst.Dict: self._dict,
            cst.Lambda: self._lambda,
            cst.GeneratorExp: self._comprehension,
            cst.ListComp: self._comprehension,
            cst.SetComp: self._comprehension,
            cst.DictComp: self._comprehension,
            cst.NamedExpr: self._named_expr,
            cst.Await: lambda node: Other("await", (self._read(node.expression),)),
            cst.Yield: self._yield,
            cst.Ellipsis: lambda _: Literal(...),
            cst.Slice: self._slice,
            cst.Index: lambda node: self._read(node.value),
        }

    # -- scopes, blocks and sites

    def module(self, node: cst.Module) -> None:
        self._enter("module", "", node)
        self._statements(node.body)

    def _site(self, node: cst.CSTNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _enter(self, kind: str, name: str, node: cst.CSTNode) -> _Scope:
        parent = self.scope.index if self.scopes else -1
        prefix = self.scope.qualified_name if self.scopes else ""
        scope = _Scope(
            index=len(self.scopes),
            kind=kind,
            name=name,
            qualified_name=f"{prefix}.{name}" if prefix else name,
            parent=parent,
            site=self._site(node),
        )
        scope.blocks.append(Block("body", -1, scope.site, -1))
        self.scopes.append(scope)
        self.scope = scope
        return scope

    def _leave(self, scope: _Scope) -> None:
        self.scope = self.scopes[scope.parent]

    def _in_block(
        self,
        kind: BlockKind,
        node: cst.CSTNode,
        body: Callable[[], None],
        statement: int,
        *,
        condition: Expression | None = None,
        items: tuple[WithItem, ...] = (),
    ) -> None:
        scope, outer = self.scope, self.scope.block
        scope.blocks.append(Block(kind, outer, self._site(node), statement, condition, items))
        scope.block = len(scope.blocks) - 1
        body()
        scope.block = outer

    def _new_statement(self) -> int:
        self.statements += 1
        return self.statements

    # -- statements

    def _statements(self, body: Sequence[cst.CSTNode]) -> None:
        handlers = self._statement_handlers
        for node in body:
            handler = handlers.get(type(node))
            if handler is not None:
                handler(node)

    def _suite(self, node: cst.BaseSuite) -> Callable[[], None]:
        return lambda: self._statements(node.body)

    def _simple_line(self, node: cst.SimpleStatementLine | cst.SimpleStatementSuite) -> None:
        self._statements(node.body)

    def _if(self, node: cst.If) -> None:
        statement = self._new_statement()
        condition = self._read(node.test)
        self._in_block("if", node, self._suite(node.body), statement, condition=condition)
        orelse = node.orelse
        if isinstance(orelse, cst.If):
            chained = orelse
            self._in_block("else", orelse, lambda: self._if(chained), statement, condition=condition)
        elif isinstance(orelse, cst.Else):
            self._in_block("else", orelse, self._suite(orelse.body), statement, condition=condition)

    def _for(self, node: cst.For) -> None:
        iterated = self._read(node.iter)
        statement = self._new_statement()

        def body() -> None:
            self._bind(node.target, Other("iterate", (iterated,)), node.target)
            self._statements(node.body.body)

        self._in_block("loop", node, body, statement)
        if node.orelse is not None:
            self._in_block("loop_else", node.orelse, self._suite(node.orelse.body), statement)

    def _while(self, node: cst.While) -> None:
        statement = self._new_statement()
        condition = self._read(node.test)
        self._in_block("loop", node, self._suite(node.body), statement, condition=condition)
        if node.orelse is not None:
            self._in_block("loop_else", node.orelse, self._suite(node.orelse.body), statement)

    def _with(self, node: cst.With) -> None:
        # `with a, b:` means `with a: with b:`; one block per item keeps the order of entering.
        statement = self._new_statement()

        def nested(position: int) -> None:
            if position == len(node.items):
                self._statements(node.body.body)
                return
            item = node.items[position]
            value = self._read(item.item)
            target = item.asname.name if item.asname is not None else None
            name = _dotted_name(target) if target is not None else ""
            site = self._site(item)

            def body() -> None:
                if target is not None:
                    self._bind(target, Other("enter", (value,)), item)
                nested(position + 1)

            self._in_block("with", node, body, statement, items=(WithItem(value, name, site),))

        nested(0)

    def _try(self, node: cst.Try | cst.TryStar) -> None:
        statement = self._new_statement()
        self._in_block("try", node, self._suite(node.body), statement)
        for handler in node.handlers:
            if handler.type is not None:
                self._read(handler.type)
            self._in_block("except", handler, self._suite(handler.body), statement)
        if node.orelse is not None:
            self._in_block("try_else", node.orelse, self._suite(node.orelse.body), statement)
        if node.finalbody is not None:
            self._in_block("finally", node.finalbody, self._suite(node.finalbody.body), statement)

    def _match(self, node: cst.Match) -> None:
        subject = self._read(node.subject)
        statement = self._new_statement()
        for case in node.cases:
            guard = self._read(case.guard) if case.guard is not None else None

            def body(case: cst.MatchCase = case) -> None:
                names = tuple(_captured_names(case.pattern))
                if names:
                    self._assigned(names, Other("iterate", (subject,)), case.pattern)
                self._statements(case.body.body)

            self._in_block("case", case, body, statement, condition=guard)

    def _function(self, node: cst.FunctionDef) -> None:
        decorators = tuple(self._read(decorator.decorator) for decorator in node.decorators)
        parameters = self._parameters(node.params)
        outer = self.scope
        scope = self._enter("function", node.name.value, node.name)
        scope.decorators, scope.parameters = decorators, parameters
        self.identifiers.add(node.name.value)
        outer.events.append(Definition(scope.index, outer.block))
        self._statements(node.body.body)
        self._leave(scope)

    def _class(self, node: cst.ClassDef) -> None:
        decorators = tuple(self._read(decorator.decorator) for decorator in node.decorators)
        bases = tuple(self._read(base.value) for base in node.bases)
        for keyword in node.keywords:
            self._read(keyword.value)
        outer = self.scope
        scope = self._enter("class", node.name.value, node.name)
        scope.decorators, scope.bases = decorators, bases
        self.identifiers.add(node.name.value)
        outer.events.append(Definition(scope.index, outer.block))
        self._statements(node.body.body)
        self._leave(scope)

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

    def _expr(self, node: cst.Expr) -> None:
        value = node.value
        # A docstring or a comment in quotes says nothing about the program.
        if not isinstance(value, cst.SimpleString | cst.ConcatenatedString):
            self._read(value)

    def _assign(self, node: cst.Assign) -> None:
        value = self._read(node.value)
        for target in node.targets:
            self._bind(target.target, value, node)

    def _ann_assign(self, node: cst.AnnAssign) -> None:
        self._read(node.annotation.annotation)
        if node.value is not None:
            self._bind(node.target, self._read(node.value), node)

    def _aug_assign(self, node: cst.AugAssign) -> None:
        value = self._read(node.value)
        operator = _OPERATORS.get(type(node.operator), "?")
        target = self._read(node.target)
        name = target.dotted if isinstance(target, Name) else ""
        if isinstance(target, Subscript | Attribute):
            name = _base_name(target)
        self._assigned((name,), value, node, operator)

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
            self._assigned(names, value, node, unpacked=True)
            return
        written = self._read(target)
        if isinstance(written, Name):
            self._assigned((written.dotted,), value, node)
        elif isinstance(written, Subscript):
            # `losses["a"] = x` adds to what `losses` holds.
            self._assigned((_base_name(written),), value, node, operator="[]")

    def _assigned(
        self,
        targets: tuple[str, ...],
        value: Expression,
        node: cst.CSTNode,
        operator: str = "",
        unpacked: bool = False,
    ) -> None:
        scope = self.scope
        scope.events.append(Assignment(targets, value, scope.block, self._site(node), operator, unpacked))

    def _return(self, node: cst.Return) -> None:
        value: Expression = self._read(node.value) if node.value is not None else Literal(None)
        self.scope.events.append(Return(value, self.scope.block, self._site(node)))

    def _raise(self, node: cst.Raise) -> None:
        if node.exc is not None:
            self._read(node.exc)
        self._jump("raise")

    def _jump(self, kind: str) -> None:
        self.scope.events.append(Jump(kind, self.scope.block))

    def _assert(self, node: cst.Assert) -> None:
        self._read(node.test)

    def _del(self, node: cst.Del) -> None:
        self._read(node.target)

    def _global(self, node: cst.Global | cst.Nonlocal) -> None:
        self.scope.outer_names.update(item.name.value for item in node.names)

    def _import(self, node: cst.Import) -> None:
        for alias in node.names:
            qualified = _dotted_name(alias.name)
            if alias.asname is not None:
                self._imported(_dotted_name(alias.asname.name), qualified)
            else:
                # `import torch.cuda.amp` binds `torch`.
                root = qualified.split(".", 1)[0]
                self._imported(root, root)
            self.identifiers.update(qualified.split("."))

    def _import_from(self, node: cst.ImportFrom) -> None:
        module = "." * len(node.relative) + (_dotted_name(node.module) if node.module is not None else "")
        self.identifiers.update(part for part in module.split(".") if part)
        if isinstance(node.names, cst.ImportStar):
            self._imported("*", module)
            return
        for alias in node.names:
            name = _dotted_name(alias.name)
            separator = "" if module.endswith(".") else "."
            bound = _dotted_name(alias.asname.name) if alias.asname is not None else name
            self._imported(bound, f"{module}{separator}{name}")
            self.identifiers.add(name)

    def _imported(self, name: str, qualified: str) -> None:
        self.identifiers.add(name)
        self.scope.imports.append(Import(name, qualified, self.scope.block))

    # -- expressions

    def _read(self, node: cst.CSTNode) -> Expression:
        handler = self._expression_handlers.get(type(node))
        if handler is not None:
            return handler(node)
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
        call = Call(function, arguments, self._site(node))
        self.scope.events.append(CallEvent(call, self.scope.block))
        return call

    def _argument(self, node: cst.Arg) -> Argument:
        keyword = node.keyword.value if node.keyword is not None else ""
        if keyword:
            self.identifiers.add(keyword)
        return Argument(self._read(node.value), keyword, node.star)

    def _string(self, node: cst.SimpleString) -> Expression:
        try:
            value: Any = ast.literal_eval(node.value)
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
            "string",
            tuple(
                self._read(part.expression)
                for part in node.parts
                if isinstance(part, cst.FormattedStringExpression)
            ),
        )

    def _number(self, node: cst.Integer | cst.Float | cst.Imaginary) -> Expression:
        try:
            return Literal(ast.literal_eval(node.value))
        except (ValueError, SyntaxError):
            return Other("number")

    def _binary(self, node: cst.BinaryOperation | cst.BooleanOperation) -> Expression:
        return Operation(
            _OPERATORS.get(type(node.operator), "?"), (self._read(node.left), self._read(node.right))
        )

    def _unary(self, node: cst.UnaryOperation) -> Expression:
        return Operation(_OPERATORS.get(type(node.operator), "?"), (self._read(node.expression),))

    def _comparison(self, node: cst.Comparison) -> Expression:
        left = self._read(node.left)
        found: list[Expression] = []
        for part in node.comparisons:
            right = self._read(part.comparator)
            found.append(Operation(_OPERATORS.get(type(part.operator), "?"), (left, right)))
            left = right
        return found[0] if len(found) == 1 else Operation("and", tuple(found))

    def _if_exp(self, node: cst.IfExp) -> Expression:
        return Choice(self._read(node.test), self._read(node.body), self._read(node.orelse))

    def _subscript(self, node: cst.Subscript) -> Expression:
        value = self._read(node.value)
        indices = tuple(self._read(element.slice) for element in node.slice)
        return Subscript(value, indices[0] if len(indices) == 1 else Collection("tuple", indices))

    def _slice(self, node: cst.Slice) -> Expression:
        bounds = (node.lower, node.upper, node.step)
        return Other("slice", tuple(self._read(bound) for bound in bounds if bound is not None))

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
        scope.events.append(Return(value, 0, scope.site))
        self._leave(scope)
        return Closure(scope.index)

    def _comprehension(self, node: Any) -> Expression:
        iterated: list[Expression] = []
        loop: cst.CompFor | None = node.for_in
        while loop is not None:
            iterated.append(self._read(loop.iter))
            iterated.extend(self._read(condition.test) for condition in loop.ifs)
            loop = loop.inner_for_in
        elements = (node.key, node.value) if isinstance(node, cst.DictComp) else (node.elt,)
        return Other("comprehension", (*(self._read(element) for element in elements), *iterated))

    def _named_expr(self, node: cst.NamedExpr) -> Expression:
        value = self._read(node.value)
        self._bind(node.target, value, node)
        return value

    def _yield(self, node: cst.Yield) -> Expression:
        value: Expression = Literal(None)
        if isinstance(node.value, cst.From):
            value = self._read(node.value.item)
        elif node.value is not None:
            value = self._read(node.value)
        self.scope.events.append(Return(value, self.scope.block, self._site(node), is_yield=True))
        return Other("yield", (value,))


def _dotted_name(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = _dotted_name(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return ""


def _base_name(expression: Expression) -> str:
    """`losses` of `losses["a"][0]`; '' when there is no name at the root."""
    while isinstance(expression, Subscript | Attribute):
        expression = expression.value
    return expression.dotted if isinstance(expression, Name) else ""


def _target_names(node: cst.CSTNode) -> list[str]:
    if isinstance(node, cst.Tuple | cst.List):
        return [name for element in node.elements for name in _target_names(element.value)]
    name = _dotted_name(node)
    return [name] if name else []


def _captured_names(pattern: cst.CSTNode) -> list[str]:
    names = []
    if isinstance(pattern, cst.MatchAs | cst.MatchStar) and pattern.name is not None:
        names.append(pattern.name.value)
    for child in pattern.children:
        names.extend(_captured_names(child))
    return names
