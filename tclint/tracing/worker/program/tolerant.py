"""Rewrites a program so that it goes on after a statement fails, with what that would have set unknown.

A program that makes a model also reads data that are missing here, asks for a GPU and talks to servers. None
of that has to work, as long as nothing that depends on it counts as known.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

from tclint.tracing.worker.program.unknown import UNKNOWN, Unknown

NAME = "_tclint"
"""The name of the `Tolerance` among the builtins of the program."""
_JUMPS = (ast.Global, ast.Nonlocal, ast.Pass, ast.Break, ast.Continue, ast.Raise)
_HERE_ONLY = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
"""Expressions that would mean something else inside a lambda."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SMALL_TRY = 4
"""The most statements of a `try` whose errors reach its handlers; a longer body does more than these
expect."""
Block: TypeAlias = "list[ast.stmt]"


class Tolerance:
    """What rewritten code calls.

    Args:
        builder: wraps the function that builds the model.
    """

    UNKNOWN = UNKNOWN

    def __init__(self, builder: Callable[[Any], Any]) -> None:
        self.builder = builder
        self.is_on = True
        self.missing: dict[str, None] = {}
        """The files that were not found."""
        self._spoilt: dict[int, Any] = {}
        """Lists and the like that may lack items, by their ids."""

    def install(self) -> None:
        """Let rewritten code find this, and let `len` refuse what may lack items."""
        setattr(builtins, NAME, self)
        length: Callable[[Any], int] = builtins.len

        def known_length(of: Any) -> int:
            return length(UNKNOWN if self.is_spoilt(of) else of)

        builtins.len = known_length

    def is_spoilt(self, value: object) -> bool:
        """Whether a value may lack some of what it holds."""
        return id(value) in self._spoilt

    def failed(self, error: Exception) -> None:
        """Let the program go on after an error, or raise it again."""
        if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
            self.missing[os.path.abspath(error.filename)] = None
        if not self.is_on or isinstance(error, (RecursionError, MemoryError)):
            raise error

    def true(self, test: Callable[[], Any]) -> bool:
        """Whether a loop goes on."""
        try:
            return bool(test())
        except Exception as error:
            self.failed(error)
            return False

    def items(self, of: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        """The items of a loop; one unknown item where they cannot be told."""
        count = 0
        try:
            for item in of():
                count += 1
                yield item
        except Exception as error:
            self.failed(error)
            if not count:
                yield UNKNOWN

    @contextlib.contextmanager
    def manager(self, of: Callable[[], Any]) -> Iterator[Any]:
        """What a `with` enters; where that fails, its body runs all the same."""
        with contextlib.ExitStack() as stack:
            entered = UNKNOWN
            try:
                entered = stack.enter_context(of())
            except Exception as error:
                self.failed(error)
            yield entered

    def lacks(self, value: object) -> None:
        """Note that a container may lack items."""
        if isinstance(value, (dict, list, set)):
            self._spoilt[id(value)] = value

    def spoil(self, value: object) -> bool:
        """Make a value that a failed statement may have changed unknown wherever it is held, as far as Python
        allows; whether it may have changed."""
        if isinstance(value, (ModuleType, FunctionType, type)):
            return False
        try:
            object.__setattr__(value, "__class__", Unknown)
            vars(value).clear()
        except TypeError:
            self._spoilt[id(value)] = value
        return True


def tolerant(source: bytes | str, path: str, builder: str = "") -> Any:
    """Rewrite and compile a file.

    Methods of classes with a `forward` stay as they are: an error in a model is the model's own.

    Args:
        builder: the qualified name of the function that builds the model, if this file has it.

    Raises:
        SyntaxError: the source is not valid Python.
    """
    tree = ast.parse(source, path)
    tree.body = _Rewriter(builder).block(tree.body, is_module=True)
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Rewriter:
    def __init__(self, builder: str) -> None:
        self._builder = builder
        self._within: list[str] = []
        self._locals: list[set[str] | None] = [None]
        """The names that each enclosing function sets; None for the module, where every name can be set."""
        self._count = 0

    def block(self, body: Block, *, is_module: bool = False) -> Block:
        """The statements of a body, rewritten; its docstring and `from __future__` stay first."""
        found: Block = []
        for statement in body:
            is_first = not found or isinstance(found[-1], ast.ImportFrom)
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if (is_text and is_first) or (is_module and is_future):
                found.append(statement)
            else:
                found += self._statement(statement)
        return found or [ast.Pass()]

    def _statement(self, node: ast.stmt) -> Block:
        if isinstance(node, _JUMPS):
            return [node]
        if isinstance(node, _FUNCTIONS):
            return [self._function(node)]
        if isinstance(node, ast.ClassDef):
            return [self._class(node)]
        if isinstance(node, ast.If):
            return self._if(node)
        if isinstance(node, ast.For):
            return self._for(node)
        if isinstance(node, ast.While):
            if not _has(node.test, _HERE_ONLY):
                node.test = _call("true", node.test)
            node.body, node.orelse = self.block(node.body), self._orelse(node.orelse)
            return [node]
        if isinstance(node, ast.With):
            return [self._with(node)]
        if isinstance(node, ast.Try):
            return [self._try(node)]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return [self._import(node, alias) for alias in node.names]
        if isinstance(node, ast.Return):
            return [_guarded(node, [ast.Return(_unknown())])] if node.value is not None else [node]
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return [_guarded(node, self._set_unknown(targets))]
        return [_guarded(node, self._unset([node]))]

    def _function(self, node: Any) -> ast.stmt:
        self._within.append(node.name)
        inside = [*_within_function(node)]
        kept = [one for one in inside if isinstance(one, (ast.Global, ast.Nonlocal))]
        outer = {name for one in kept for name in one.names}
        stored = {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        taken = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        self._locals.append((stored | taken) - outer)
        node.body = self.block(node.body)
        self._locals.pop()
        if kept:  # they have to come before what uses the names
            _DropScopes().visit_body(node)
            is_text = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            node.body[is_text:is_text] = [type(one)(names=list(one.names)) for one in kept]
        if ".".join(self._within) == self._builder:
            node.decorator_list.append(ast.Attribute(ast.Name(NAME, ast.Load()), "builder", ast.Load()))
        self._within.pop()
        return node  # type: ignore[no-any-return]

    def _class(self, node: ast.ClassDef) -> ast.stmt:
        self._within.append(node.name)
        is_model = any(isinstance(one, _FUNCTIONS) and one.name == "forward" for one in node.body)
        for one in node.body:
            if isinstance(one, _FUNCTIONS):
                name = ".".join([*self._within, one.name])
                if name == self._builder or not is_model:
                    self._function(one)
        self._within.pop()
        return _guarded(node, self._set_unknown([ast.Name(node.name, ast.Store())]))

    def _if(self, node: ast.If) -> Block:
        """The branch that the test chooses; if the test fails, neither, and what both would set is
        unknown."""
        if isinstance(node.test, ast.Constant):
            return [node]
        answer = self._name()
        unset = self._unset([*node.body, *node.orelse])
        asked = ast.Assign([ast.Name(answer, ast.Store())], _truth(node.test))
        none = ast.Assign([ast.Name(answer, ast.Store())], ast.Constant(None))
        chosen = ast.If(_is(answer, True), self.block(node.body), [])
        if node.orelse:
            chosen.orelse = [ast.If(_is(answer, False), self.block(node.orelse), [])]
        found: Block = [_guarded(asked, [none], node), ast.copy_location(chosen, node)]
        return [*found, ast.copy_location(ast.If(_is(answer, None), unset, []), node)] if unset else found

    def _for(self, node: ast.For) -> Block:
        item = self._name()
        bound = ast.Assign([node.target], ast.Name(item, ast.Load()))
        unset = self._unset(node.body)
        head = _guarded(bound, self._set_unknown([node.target]), node)
        node.target = ast.Name(item, ast.Store())
        if not _has(node.iter, _HERE_ONLY):
            node.iter = _call("items", node.iter)
        node.body, node.orelse = [head, *self.block(node.body)], self._orelse(node.orelse)
        first = ast.copy_location(ast.Assign([ast.Name(item, ast.Store())], ast.Constant(None)), node)
        if not unset:
            return [first, node]
        is_unknown = ast.Compare(ast.Name(item, ast.Load()), [ast.Is()], [_unknown()])
        return [first, node, ast.copy_location(ast.If(is_unknown, unset, []), node)]

    def _with(self, node: ast.With) -> ast.stmt:
        heads: Block = []
        for item in node.items:
            if _has(item.context_expr, _HERE_ONLY):
                continue
            item.context_expr = _call("manager", item.context_expr)
            if item.optional_vars is not None:
                target, name = item.optional_vars, self._name()
                item.optional_vars = ast.Name(name, ast.Store())
                bound = ast.Assign([target], ast.Name(name, ast.Load()))
                heads.append(_guarded(bound, self._set_unknown([target]), node))
        unset = self._unset(node.body)
        node.body = [*heads, *self.block(node.body)]
        return _guarded(node, unset)

    def _try(self, node: ast.Try) -> ast.stmt:
        """Leave what a short body raises to its handlers."""
        unset = self._unset(node.body)
        if len(node.body) > _SMALL_TRY or not any(map(_takes_errors, node.handlers)):
            node.body = self.block(node.body)
        for handler in node.handlers:
            handler.body = self.block(handler.body)
        node.orelse, node.finalbody = self._orelse(node.orelse), self._orelse(node.finalbody)
        return _guarded(node, unset)

    def _import(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
        one: ast.stmt = (
            ast.Import([alias])
            if isinstance(node, ast.Import)
            else ast.ImportFrom(node.module, [alias], node.level)
        )
        name = ast.Name(alias.asname or alias.name.partition(".")[0], ast.Store())
        return _guarded(one, [] if alias.name == "*" else self._set_unknown([name]), node)

    def _orelse(self, body: Block) -> Block:
        return self.block(body) if body else []

    def _name(self) -> str:
        self._count += 1
        return f"{NAME}_{self._count}"

    # -- what becomes unknown

    def _unset(self, nodes: Iterable[ast.stmt]) -> Block:
        """Make unknown what statements would have set, and what their calls might have changed."""
        names: list[ast.expr] = []
        changed: list[ast.expr] = []
        for node in (inner for one in nodes for inner in _within_statement(one)):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                names.append(node)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                changed.append(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                is_base = isinstance(owner, ast.Call) and ast.unparse(owner.func) == "super"
                changed.append(ast.Name("self", ast.Load()) if is_base else owner)
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                names.append(ast.Name(node.name, ast.Store()))
        return [*self._set_unknown(names), *self._set_unknown(changed, are_changed=True)]

    def _set_unknown(self, nodes: Iterable[ast.expr], *, are_changed: bool = False) -> Block:
        found: dict[str, str] = {}
        for node in (leaf for one in nodes for leaf in _leaves(one)):
            text = ast.unparse(node)
            if text == "self" and are_changed:
                found[text] = f"{NAME}.lacks(self)"
            if text in ("self", "cls") or not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
                continue
            found[text] = f"{text} = {NAME}.UNKNOWN"
            if are_changed:
                is_set = not isinstance(node, ast.Name) or self._may_set(node.id)
                found[text] = f"if {NAME}.spoil({text}): {found[text] if is_set else 'pass'}"
        lines = (f"try:\n {line}\nexcept Exception: pass" for line in found.values())
        return [_without_places(one) for one in ast.parse("\n".join(lines)).body]

    def _may_set(self, name: str) -> bool:
        """Whether setting a name sets what the code reads by it: a function's own, or the module's."""
        own = self._locals[-1]
        return own is None or name in own


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _leaves(item)
    elif isinstance(node, ast.Starred):
        yield from _leaves(node.value)
    elif not _has(node, (ast.Call, *_HERE_ONLY)):
        yield node


def _within_statement(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and what it runs itself, not what functions in it would."""
    yield node
    if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _within_statement(child)


def _within_function(node: Any) -> Iterator[ast.AST]:
    for statement in node.body:
        yield from _within_statement(statement)


class _DropScopes(ast.NodeTransformer):
    """Takes `global` and `nonlocal` out of a function."""

    def visit_body(self, function: Any) -> None:
        function.body = [self.visit(one) for one in function.body]

    def visit_Global(self, _node: ast.Global) -> ast.stmt:
        return ast.Pass()

    def visit_Nonlocal(self, _node: ast.Nonlocal) -> ast.stmt:
        return ast.Pass()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        return node


def _takes_errors(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) not in ("KeyboardInterrupt", "SystemExit")


def _has(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    return any(isinstance(one, kinds) for one in ast.walk(node))


def _guarded(node: ast.stmt, otherwise: Block, place: ast.stmt | None = None) -> ast.stmt:
    """`try: node`, and `otherwise` where it fails."""
    place = place or node
    ast.copy_location(node, place)
    failed = ast.Expr(ast.Call(_attribute("failed"), [ast.Name(f"{NAME}_error", ast.Load())], []))
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), f"{NAME}_error", [failed, *otherwise])
    return ast.copy_location(ast.Try([node], [handler], [], []), place)


def _call(name: str, argument: ast.expr) -> ast.expr:
    nothing = ast.arguments([], [], None, [], [], None, [])
    called = ast.Call(_attribute(name), [ast.Lambda(nothing, argument)], [])
    return ast.copy_location(called, argument)


def _attribute(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(NAME, ast.Load()), name, ast.Load())


def _unknown() -> ast.expr:
    return _attribute("UNKNOWN")


def _truth(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.IfExp(test, ast.Constant(True), ast.Constant(False)), test)


def _is(name: str, value: bool | None) -> ast.expr:
    return ast.Compare(ast.Name(name, ast.Load()), [ast.Is()], [ast.Constant(value)])


def _without_places(node: ast.stmt) -> ast.stmt:
    for inner in ast.walk(node):
        for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            if hasattr(inner, name):
                delattr(inner, name)
    return node
