"""The sizes written in one file: numbers, expressions that compute them, and the names bound to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tclint.edits.sizes.syntax import (
    Position,
    constant,
    end_of,
    last_name,
    names_in,
    parsed,
    start_of,
    text_between,
)

Kind: TypeAlias = Literal["number", "expression"]


@dataclass(frozen=True, slots=True)
class Written:
    """A number or an expression in a file."""

    path: str
    """The absolute path of the file."""
    start: Position
    end: Position
    """The end, exclusive."""
    text: str
    kind: Kind
    name: str = ""
    """The name that it is bound to: a parameter, variable, field, key or option; '' for a positional argument
    of a function that no file here defines."""
    value: int | None = None
    """The value, if it is a number."""
    whole: bool = True
    """Whether the name has exactly that value and not one computed from it."""


@dataclass(slots=True)
class FileSizes:
    """The sizes written in one file, with the names around them."""

    path: str
    written: list[Written] = field(default_factory=list)
    sources: dict[str, set[str]] = field(default_factory=dict)
    """Name -> the names from which its value is computed."""
    parameters: dict[str, list[str]] = field(default_factory=dict)
    """Function, class or dataclass -> the names of its positional parameters."""
    calls: list[_Call] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call in a Python file."""

    first_line: int
    last_line: int
    function: str
    names: frozenset[str]
    """The names in its arguments."""
    positional: tuple[tuple[ast.expr, int], ...] = ()


_COMPUTED = (ast.BinOp, ast.Call)
_ROUNDING = frozenset({"int", "round", "floor", "ceil", "trunc"})
_KEYED_NUMBER = re.compile(
    r"""(?P<quote>["']?)(?P<key>[A-Za-z_][\w.-]*)(?P=quote)[ \t]*[:=][ \t]*"""
    r"""(?P<values>[^:="'{}#\n]*(?:\n\s*[-\d\[\],\s]+)*)""",
)
_NUMBER = re.compile(r"(?<![\w.+-])\d+(?![\w.])")
_LARGEST_FILE_CHARACTERS = 1_000_000


def written_in(path: str, text: str) -> FileSizes:
    """The sizes of a file: Python by its syntax, anything else (JSON, YAML, TOML) by keys and numbers."""
    found = FileSizes(path)
    if len(text) > _LARGEST_FILE_CHARACTERS:
        return found
    if path.endswith(".py"):
        _Reader(found, text).visit(parsed(text))
    else:
        found.written.extend(_keyed(path, text))
    return found


def _keyed(path: str, text: str) -> Iterator[Written]:
    for match in _KEYED_NUMBER.finditer(text):
        for number in _NUMBER.finditer(match["values"]):
            start = match.start("values") + number.start()
            line = text.count("\n", 0, start) + 1
            column = start - (text.rfind("\n", 0, start) + 1) + 1
            end = (line, column + len(number[0]))
            name = _plain(match["key"])
            yield Written(path, (line, column), end, number[0], "number", name, int(number[0]))


def _plain(name: str) -> str:
    """The variable name for an option or key: 'hidden_size' for '--hidden-size' and 'model.hidden_size'."""
    return name.rpartition(".")[2].lstrip("-").replace("-", "_")


class _Reader(ast.NodeVisitor):
    """Collects bindings: every way to give a name a value."""

    def __init__(self, found: FileSizes, text: str) -> None:
        self.found = found
        self._source = text
        self._class = ""
        self._bound: set[int] = set()

    # -- bindings

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._class = self._class, node.name
        fields = [
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        ]
        if fields:
            self.found.parameters.setdefault(node.name, fields)
        self.generic_visit(node)
        self._class = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        names = [argument.arg for argument in positional]
        if node.name == "__init__" and self._class:
            self.found.parameters[self._class] = names[1:]
        else:
            self.found.parameters.setdefault(node.name, names[1:] if names[:1] == ["self"] else names)
        pairs = [
            *zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True),
            *zip(given.kwonlyargs, given.kw_defaults, strict=True),
        ]
        for argument, default in pairs:
            if default is not None:
                self._bind(argument.arg, default)
        outer, self._class = self._class, ""
        self.generic_visit(node)
        self._class = outer

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind_target(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind_target(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._bind_target(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._bind_target(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._bind_target(node.target, node.iter)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._bind(_plain(key.value), value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = last_name(node.func)
        options = [
            argument.value
            for argument in node.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        for keyword in node.keywords:
            if keyword.arg == "default" and options:
                self._bind(_plain(max(options, key=len)), keyword.value)
            elif keyword.arg is not None:
                self._bind(keyword.arg, keyword.value)
        if options and function in ("get", "pop", "setdefault", "getattr") and len(node.args) > 1:
            self._bind(_plain(options[0]), node.args[-1])
        self.generic_visit(node)
        positional = tuple(
            (argument, index)
            for index, argument in enumerate(node.args)
            if not isinstance(argument, ast.Starred)
        )
        names = frozenset(name for part in (*node.args, *node.keywords) for name in names_in(part))
        last = node.end_lineno or node.lineno
        self.found.calls.append(_Call(node.lineno, last, function, names, positional))

    def _bind_target(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            paired = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for index, item in enumerate(target.elts):
                self._bind_target(item, value.elts[index] if paired else value)  # type: ignore[attr-defined]
            return
        name = last_name(target)
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            name = str(target.slice.value)
        if name:
            self._bind(name, value)

    def _bind(self, name: str, value: ast.expr) -> None:
        self.found.sources.setdefault(name, set()).update(names_in(value))
        self.note(name, value)

    def note(self, name: str, value: ast.expr, *, whole: bool = True) -> None:
        """Record the numbers and expressions that a name is bound to."""
        if id(value) in self._bound and not name:
            return
        number = constant(value)
        if number is not None:
            self._add(name, value, "number", number, whole)
        elif isinstance(value, ast.Tuple | ast.List):
            for item in value.elts:
                self.note(name, item, whole=whole)
        elif isinstance(value, ast.IfExp | ast.BoolOp):
            parts = value.values if isinstance(value, ast.BoolOp) else [value.body, value.orelse]
            for item in parts:
                self.note(name, item, whole=whole)
        elif isinstance(value, _COMPUTED):
            if isinstance(value, ast.BinOp) or last_name(value.func) in _ROUNDING:
                self._add(name, value, "expression", None, whole)
            if isinstance(value, ast.BinOp):
                for item in (value.left, value.right):
                    self.note(name, item, whole=False)

    def _add(self, name: str, node: ast.expr, kind: Kind, value: int | None, whole: bool) -> None:
        start, end = start_of(self._source, node), end_of(self._source, node)
        self._bound.add(id(node))
        text = text_between(self._source, start, end)
        self.found.written.append(Written(self.found.path, start, end, text, kind, name, value, whole))


def bind_positional(files: list[FileSizes], texts: dict[str, str]) -> None:
    """Give positional arguments the names of their parameters, if one of the files defines the callee."""
    known: dict[str, list[str]] = {}
    for file in files:
        known |= file.parameters
    for file in files:
        reader = _Reader(file, texts[file.path])
        reader._bound = set()
        for call in file.calls:
            names = known.get(call.function, [])
            for argument, index in call.positional:
                name = names[index] if index < len(names) else ""
                if name:
                    file.sources.setdefault(name, set()).update(names_in(argument))
                reader.note(name, argument)
