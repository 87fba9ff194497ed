"""Matches calls in a project's files with definitions, as far as names and imports tell.

A call counts as a call of a definition unless it is known to be of another one: one in the same file, one
imported from a file that defines it, or one of a package outside the project.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tclint.edits.sizes.syntax import (
    Function,
    Position,
    end_of,
    functions,
    last_name,
    locals_of,
    names_in,
    parsed,
    start_of,
)


@dataclass(frozen=True, slots=True)
class Default:
    """The default of a parameter."""

    path: str
    function: str
    """The function, or for a constructor the class."""
    owner: str
    """The class whose method or constructor it is; '' for a function."""
    parameter: str
    position: int | None
    """The position among the arguments of a call; None: by keyword only."""
    scope: ast.AST
    """The function."""

    @property
    def is_constructor(self) -> bool:
        return self.function == self.owner


def default_of(path: str, text: str, start: Position, end: Position) -> Default | None:
    """The default that contains a number: of a function's parameter, or of a dataclass's field."""
    tree = parsed(text)

    def holds(value: ast.expr | None) -> bool:
        return value is not None and start_of(text, value) <= start and end <= end_of(text, value)

    for function, owner in functions(tree):
        given = function.args
        positional = [*given.posonlyargs, *given.args]
        first = len(positional) - len(given.defaults)
        defaults = [*((first + index, value) for index, value in enumerate(given.defaults))]
        is_bound = owner is not None and not any(
            last_name(item) == "staticmethod" for item in function.decorator_list
        )
        name, class_name = function.name, owner.name if owner is not None else ""
        name = class_name if class_name and name == "__init__" else name
        for index, value in defaults:
            if holds(value):
                return Default(path, name, class_name, positional[index].arg, index - is_bound, function)
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            if holds(default):
                return Default(path, name, class_name, argument.arg, None, function)
    for node in ast.walk(tree):
        fields = fields_of(node) if isinstance(node, ast.ClassDef) else []
        for index, field in enumerate(fields):
            if holds(field.value):
                assert isinstance(node, ast.ClassDef)
                return Default(path, node.name, node.name, last_name(field.target), index, node)
    return None


def fields_of(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """The fields of a dataclass."""
    return [
        item for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


class Callees:
    """The definitions of a project's files.

    Args:
        texts: absolute path -> text.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._modules = {path: _module_of(path) for path in texts}
        self._bases: dict[str, set[str]] = {}
        self._classes: list[tuple[str, ast.ClassDef, set[str]]] = []
        self._defined: dict[str, set[str]] = {}
        self._imported: dict[str, dict[str, tuple[str, ...]]] = {}
        for path, text in texts.items():
            tree = parsed(text)
            self._imported[path] = dict(_imports(tree))
            self._defined[path] = {node.name for node in _outermost(tree)}
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    known = self._imported[path]
                    bases = {known.get(name, (name,))[-1] for name in map(last_name, node.bases)}
                    self._classes.append((path, node, bases))
                    self._bases.setdefault(node.name, set()).update(bases)

    def heirs(self, owner: str) -> set[str]:
        """A class and the classes that derive from it."""
        found = {owner}
        while more := {name for name, above in self._bases.items() if above & found} - found:
            found |= more
        return found

    def family(self, owner: str) -> set[str]:
        """A class, the classes that derive from it, and the project's classes that it derives from."""
        found = {owner}
        while more := {base for name in found for base in self._bases.get(name, ())} - found:
            found |= more
        return (found & self._bases.keys()) | self.heirs(owner)

    def given(self, call: ast.Call, path: str, around: Sequence[ast.AST], default: Default) -> bool:
        """Whether a call may pass a parameter a value that does not come from something with the same
        name."""
        function, arguments = call.func, call.args
        if last_name(function) == "partial" and arguments:
            function, arguments = arguments[0], arguments[1:]
        if last_name(function) == "__init__" and not _is_super(function):
            arguments = arguments[1:]
        value = next((word.value for word in call.keywords if word.arg == default.parameter), None)
        if value is None and default.position is not None and default.position < len(arguments):
            value = arguments[default.position]
        return (
            value is not None
            and default.parameter not in names_in(value)
            and self._may_be(function, path, around, default)
        )

    def _may_be(self, function: ast.expr, path: str, around: Sequence[ast.AST], default: Default) -> bool:
        inside = next((node.name for node in reversed(around) if isinstance(node, ast.ClassDef)), "")
        wanted = self._constructors(default) if default.is_constructor else {(default.path, default.function)}
        names = {name for _, name in wanted}
        if _is_super(function):
            return default.is_constructor and inside in self.heirs(default.owner) - {default.owner}
        if last_name(function) == "__init__" and isinstance(function, ast.Attribute):
            function = function.value
        if last_name(function) in ("cls", "__class__") or (
            isinstance(function, ast.Call) and last_name(function.func) == "type"
        ):
            return inside in names
        parts = _parts(function)
        if not parts:
            return False
        imported = self._imported[path].get(parts[0])
        is_alone, is_local = len(parts) == 1, _is_local(parts[0], around)
        if imported is not None:
            parts = (*imported, *parts[1:])
        if parts[-1] not in names:
            return False
        if is_alone and is_local:
            return True
        if imported is not None:
            return (is_alone and parts[-1] in self._defined[path]) or self._is_of(parts, wanted)
        if is_alone:
            return (path, parts[-1]) in wanted or parts[-1] not in self._defined[path]
        if parts[0] == "self":
            return bool(default.owner) and inside in self.family(default.owner)
        return True

    def _constructors(self, default: Default) -> set[tuple[str, str]]:
        """The classes with the constructor of a class: itself and heirs without one of their own."""
        found = {(default.path, default.function)}
        while (
            more := {
                (path, node.name)
                for path, node, bases in self._classes
                if bases & {name for _, name in found}
                and not any(
                    isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body
                )
            }
            - found
        ):
            found |= more
        return found

    def _is_of(self, parts: tuple[str, ...], wanted: Collection[tuple[str, str]]) -> bool:
        """Whether a module's name may be one of the definitions; modules may re-export what they import."""
        *module, name = parts
        is_relative = module[:1] == [""]
        module = module[is_relative:]
        if not module:
            return True
        files = [path for path, own in self._modules.items() if own[-len(module) :] == tuple(module)]
        defining = [path for path in files if name in self._defined[path]]
        if defining:
            return any((path, name) in wanted for path in defining)
        return is_relative or bool(files) or any(module[0] in own for own in self._modules.values())


def _module_of(path: str) -> tuple[str, ...]:
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return tuple(part for part in parts if part)


def _imports(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(bound name, parts of the full name) of a file's imports; the first part is '' for a relative
    import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                parts = tuple(item.name.split("."))
                yield (item.asname, parts) if item.asname else (parts[0], parts[:1])
        elif isinstance(node, ast.ImportFrom):
            module: tuple[str, ...] = ("",) if node.level else ()
            module += tuple(node.module.split(".")) if node.module else ()
            for item in node.names:
                yield item.asname or item.name, (*module, item.name)


def _outermost(tree: ast.AST) -> Iterator[Function | ast.ClassDef]:
    pending = [tree]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield child
            elif isinstance(child, ast.stmt):
                pending.append(child)


def _parts(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        above = _parts(node.value)
        return (*above, node.attr) if above else ("?", node.attr)
    return ()


def _is_super(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and last_name(node.value.func) == "super"
    )


def _is_local(name: str, around: Sequence[ast.AST]) -> bool:
    functions = (node for node in around if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(name in locals_of(function) for function in functions)
