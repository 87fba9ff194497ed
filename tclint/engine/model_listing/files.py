"""Reads Python files for the listing of models: their classes, functions and imports."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

EXAMPLES = ("example_input_sets", "EXAMPLE_INPUT_SETS", "example_inputs", "EXAMPLE_INPUTS")
"""Names in a file that provide the inputs of its models."""


@dataclass(eq=False)
class ModelClass:
    """A class of the project."""

    node: ast.ClassDef
    file: ModelFile
    bases: list[str]
    """Dotted names, resolved through the file's imports."""
    own_needs: tuple[str, ...] | None
    """Arguments of its own __init__ without a default; None if it has no __init__."""
    has_forward: bool
    """Whether it has a forward or a method that replaces it."""
    trains_itself: bool
    """Whether it has the training step of a LightningModule."""


@dataclass(eq=False)
class ModelFile:
    path: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    """Local name -> dotted origin."""
    classes: dict[str, ModelClass] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    is_relative: bool = False
    inputs: str | None = None
    """The name in the file that provides inputs."""

    @property
    def module(self) -> str:
        """'package.module' from the working directory."""
        return ".".join(_parts(self.path)).removesuffix(".__init__")

    def dotted(self, node: ast.AST) -> str:
        """The full name of a dotted name: 'torch.nn.Linear' for `nn.Linear`; '' for other expressions."""
        parts: list[str] = []
        current = node
        while isinstance(current, ast.Attribute):
            parts.append(current.attr)
            current = current.value
        if not isinstance(current, ast.Name):
            return ""
        parts.append(self.imports.get(current.id, current.id))
        return ".".join(reversed(parts))


class ListedProject:
    """The files that are read together."""

    def __init__(self, files: Sequence[ModelFile]) -> None:
        self.files = files
        self._roots = {part for file in files for part in _parts(file.path)}
        self._classes: dict[str, list[ModelClass]] = {}
        self._functions: dict[str, list[tuple[ModelFile, ast.FunctionDef]]] = {}
        for file in files:
            for name, item in file.classes.items():
                self._classes.setdefault(name, []).append(item)
            for name, node in file.functions.items():
                self._functions.setdefault(name, []).append((file, node))

    def find_class(self, file: ModelFile, dotted: str) -> ModelClass | None:
        """The class of the project that a dotted name in a file means; None for others."""
        if dotted in file.classes:
            return file.classes[dotted]
        items = self._classes.get(dotted.rpartition(".")[2], [])
        at = self._choose(dotted, [item.file for item in items])
        return None if at is None else items[at]

    def find_function(self, file: ModelFile, dotted: str) -> ast.FunctionDef | None:
        """The top-level function of the project that a dotted name in a file means; None for others."""
        if dotted in file.functions:
            return file.functions[dotted]
        items = self._functions.get(dotted.rpartition(".")[2], [])
        at = self._choose(dotted, [item[0] for item in items])
        return None if at is None else items[at][1]

    def _choose(self, dotted: str, files: Sequence[ModelFile]) -> int | None:
        """The index of the file that is meant among those that define a name: the imported one, else the
        first."""
        head = dotted.rpartition(".")[0]
        if not files or (head and head.partition(".")[0] not in self._roots):
            return None
        for at, file in enumerate(files):
            if head and f".{file.module}".endswith(f".{head}"):
                return at
        return 0


def read(path: str, data: bytes | None = None) -> ModelFile | None:
    """The contents of a file; None if it is not Python 3.

    Args:
        data: bytes to use instead of those on the disk.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(Path(path).read_bytes() if data is None else data)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    file = ModelFile(path, tree)
    for node in tree.body:
        _note(file, node)
    return file


_FORWARDS = ("forward", "__call__", "training_step")


def _only_raises(node: ast.FunctionDef) -> bool:
    """Whether a method is left out: `raise NotImplementedError`."""
    return all(isinstance(item, ast.Raise | ast.Expr | ast.Pass) for item in node.body) and any(
        isinstance(item, ast.Raise) for item in node.body
    )


def _note(file: ModelFile, node: ast.stmt) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            file.imports[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
    elif isinstance(node, ast.ImportFrom):
        file.is_relative = file.is_relative or node.level > 0
        for alias in node.names:
            file.imports[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}".lstrip(".")
    elif isinstance(node, ast.ClassDef):
        own = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        initialiser = own.get("__init__")
        file.classes[node.name] = ModelClass(
            node,
            file,
            [dotted for base in node.bases if (dotted := file.dotted(base))],
            None if initialiser is None else needs(initialiser, skip=1),
            any(name in own and not _only_raises(own[name]) for name in _FORWARDS),
            "training_step" in own,
        )
    elif isinstance(node, ast.FunctionDef):
        file.functions[node.name] = node
        if node.name in EXAMPLES:
            file.inputs = f"{node.name}()"
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in EXAMPLES:
                file.inputs = target.id
    elif isinstance(node, ast.If | ast.Try):
        for inner in (*node.body, *node.orelse):
            _note(file, inner)


def needs(node: ast.FunctionDef, skip: int = 0) -> tuple[str, ...]:
    """Names of the arguments without a default."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[skip : len(positional) - len(arguments.defaults)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return tuple(
        argument.arg
        for argument in (*required, *(keyword for keyword, default in keywords if default is None))
    )


def names_in(file: ModelFile, *nodes: ast.AST) -> Iterator[str]:
    """The dotted names in code, and strings that are names, except those that are only compared with."""
    for node in nodes:
        if isinstance(node, ast.Call) and file.dotted(node.func) in ("isinstance", "issubclass"):
            continue
        if isinstance(node, ast.Name | ast.Attribute) and (dotted := file.dotted(node)):
            yield dotted
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.value.rpartition(".")[2]
        else:
            yield from names_in(file, *ast.iter_child_nodes(node))


def own_nodes(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function in the order of the text, without those of functions in it."""
    for child in node.body:
        yield from _walk(child)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _parts(path: str) -> tuple[str, ...]:
    return Path(os.path.relpath(path)).with_suffix("").parts
