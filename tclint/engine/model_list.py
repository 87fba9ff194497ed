"""What in a file could be linted as a model, by reading alone: functions that return modules, and classes.

A class is listed unless another module builds it (then it is a part) or derives from it without more. What
is imported from elsewhere is known by its name only.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_MODULE_BASES = frozenset(
    {
        "LightningModule",
        "Module",
        "ModuleDict",
        "ModuleList",
        "PreTrainedModel",
        "ScriptModule",
        "Sequential",
    }
)
_ABSTRACT = frozenset({"LightningModule", "Module", "PreTrainedModel", "ScriptModule"})
_LIBRARIES = ("torch.nn.", "pytorch_lightning.", "lightning.", "transformers.")
_LIBRARY_BUILDERS = re.compile(
    r"(timm\.create_model|torchvision\.models\..*\.?[a-z]\w*|torch\.hub\.load|.*\.from_pretrained|.*\.from_config)"
)
_BUILDER_NAME = re.compile(r"(build|make|create|get)_?(the_)?(\w*_)?(model|net|network|module)s?|model|net")
_EXAMPLES = ("example_input_sets", "EXAMPLE_INPUT_SETS", "example_inputs", "EXAMPLE_INPUTS")


@dataclass(frozen=True)
class Candidate:
    """A callable that tclint can be given."""

    target: str
    """'model.py:build_model', from the working directory."""
    name: str
    kind: Literal["function", "class"]
    path: str
    line: int
    needs: tuple[str, ...]
    """Arguments without a default, which --arg has to give."""
    inputs: str | None
    """What in the file provides inputs; None: they are inferred."""
    certain: bool
    """False where only its name says that it builds a model."""


@dataclass
class _Class:
    node: ast.ClassDef
    bases: list[str]
    needs: tuple[str, ...] | None
    """Arguments of its own __init__; None without one."""
    has_forward: bool


@dataclass
class _File:
    path: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    """Local name to dotted origin."""
    classes: dict[str, _Class] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    is_relative: bool = False
    inputs: str | None = None


_Classes = Mapping[str, _Class]
"""Module classes by the name under which a file knows them."""


def list_models(paths: Sequence[str]) -> tuple[list[Candidate], list[str]]:
    """Candidates of Python files, and the files that cannot be read.

    Within a file, what needs no arguments comes first, and functions before classes.
    """
    files: list[_File] = []
    unread: list[str] = []
    for path in paths:
        read = _read(path)
        if read is None:
            unread.append(path)
        else:
            files.append(read)
    views = _module_classes(files)
    parts = _parts(files, views)
    found: list[Candidate] = []
    for file, classes in zip(files, views, strict=True):
        functions = list(_functions_of(file, classes))
        made = {name for function in functions for name in _names_in(file.functions[function.name])}
        candidates = functions
        for candidate in _classes_of(file, classes, parts):
            # A function that needs nothing tells how to make a class that needs arguments.
            if not candidate.needs or candidate.name not in made:
                candidates.append(candidate)
        found += sorted(
            candidates, key=lambda candidate: (bool(candidate.needs), candidate.kind != "function")
        )
    return found, unread


def _read(path: str) -> _File | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    file = _File(path, tree)
    for node in tree.body:
        _note(file, node)
    return file


def _note(file: _File, node: ast.stmt) -> None:
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
        file.classes[node.name] = _Class(
            node,
            [dotted for base in node.bases if (dotted := _dotted(base, file))],
            None if initialiser is None else _needs(initialiser, skip=1),
            "forward" in own or "__call__" in own,
        )
    elif isinstance(node, ast.FunctionDef):
        file.functions[node.name] = node
        if node.name in _EXAMPLES:
            file.inputs = f"{node.name}()"
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in _EXAMPLES:
                file.inputs = target.id
    elif isinstance(node, ast.If | ast.Try):
        for inner in (*node.body, *node.orelse):
            _note(file, inner)


def _module_classes(files: Sequence[_File]) -> list[_Classes]:
    """For each file, the classes it knows that derive from nn.Module, directly or through each other.

    A name that the file does not define itself means the first class of that name in any file.
    """
    anywhere: dict[str, _Class] = {}
    for file in files:
        for name, item in file.classes.items():
            anywhere.setdefault(name, item)
    views = [{**anywhere, **file.classes} for file in files]
    modules: set[int] = set()
    grown = True
    while grown:
        grown = False
        for file, view in zip(files, views, strict=True):
            for item in file.classes.values():
                if id(item) not in modules and any(_is_module(base, view, modules) for base in item.bases):
                    modules.add(id(item))
                    grown = True
    return [{name: item for name, item in view.items() if id(item) in modules} for view in views]


def _is_module(dotted: str, view: Mapping[str, _Class], modules: set[int]) -> bool:
    last = dotted.rpartition(".")[2]
    if last in view:
        return id(view[last]) in modules
    return last in _MODULE_BASES or (dotted.startswith(_LIBRARIES) and last[:1].isupper())


def _parts(files: Sequence[_File], views: Sequence[_Classes]) -> set[int]:
    """Classes that are no model of their own.

    Another module class builds them or hands them on, or derives from them, who have no forward.
    """
    parts: set[int] = set()
    for file, classes in zip(files, views, strict=True):
        for item in file.classes.values():
            if item not in classes.values():
                continue
            named = [classes[name] for name in _names_in(*item.node.body) if name in classes]
            parts |= {id(part) for part in named if part is not item}
            bases = [classes.get(base.rpartition(".")[2]) for base in item.bases]
            parts |= {id(base) for base in bases if base is not None and not base.has_forward}
    return parts


def _names_in(*nodes: ast.AST) -> set[str]:
    return {name for node in nodes for item in ast.walk(node) if (name := _last_name(item))}


def _functions_of(file: _File, classes: _Classes) -> Iterator[Candidate]:
    is_hub = os.path.basename(file.path) == "hubconf.py"
    builders: set[str] = set()
    pending = {
        name: node
        for name, node in file.functions.items()
        if not name.startswith(("_", "test_")) and name not in _EXAMPLES
    }
    grown = True
    while grown:
        grown = False
        for name, node in pending.items():
            if name not in builders and _returns_module(node, file, classes, builders):
                builders.add(name)
                grown = True
    for name, node in pending.items():
        certain = name in builders
        if certain or is_hub or (_BUILDER_NAME.fullmatch(name) and _returns_something(node)):
            yield _candidate(file, name, "function", node.lineno, _needs(node), certain or is_hub)


def _classes_of(file: _File, classes: _Classes, parts: set[int]) -> Iterator[Candidate]:
    for name, item in file.classes.items():
        is_model = classes.get(name) is item and id(item) not in parts and _runs(name, classes)
        if is_model and not name.startswith("_"):
            yield _candidate(file, name, "class", item.node.lineno, _class_needs(name, classes), True)


def _candidate(
    file: _File,
    name: str,
    kind: Literal["function", "class"],
    line: int,
    needs: tuple[str, ...],
    certain: bool,
) -> Candidate:
    return Candidate(f"{_container(file)}:{name}", name, kind, file.path, line, needs, file.inputs, certain)


def _container(file: _File) -> str:
    """The file as a target names it: as a module where it imports relatively, for that needs its package."""
    relative = os.path.relpath(file.path)
    if relative.startswith(".." + os.sep):
        return file.path
    parts = Path(relative).with_suffix("").parts
    if file.is_relative and len(parts) > 1 and all(part.isidentifier() for part in parts):
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return relative.replace(os.sep, "/")


def _runs(name: str, classes: _Classes) -> bool:
    """Whether the class or one that it derives from has a forward."""
    seen: set[str] = set()
    unseen = [name]
    while unseen:
        current = unseen.pop()
        if current in seen:
            continue
        seen.add(current)
        if current not in classes:
            # A layer of a library, which runs; its abstract bases do not.
            if current not in _ABSTRACT:
                return True
            continue
        item = classes[current]
        if item.has_forward:
            return True
        unseen += [base.rpartition(".")[2] for base in item.bases]
    return False


def _class_needs(name: str, classes: _Classes) -> tuple[str, ...]:
    seen: set[str] = set()
    while name in classes and name not in seen:
        seen.add(name)
        item = classes[name]
        if item.needs is not None:
            return item.needs
        name = next((base.rpartition(".")[2] for base in item.bases), "")
    return ()


def _needs(node: ast.FunctionDef, skip: int = 0) -> tuple[str, ...]:
    """Names of the arguments without a default."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[skip : len(positional) - len(arguments.defaults)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return tuple(
        argument.arg
        for argument in (*required, *(keyword for keyword, default in keywords if default is None))
    )


def _returns_something(node: ast.FunctionDef) -> bool:
    return any(isinstance(item, ast.Return) and item.value is not None for item in _own_nodes(node))


def _returns_module(node: ast.FunctionDef, file: _File, classes: _Classes, builders: set[str]) -> bool:
    """Whether a function returns a module, or a tuple that starts with one."""
    annotated = _last_name(node.returns) if node.returns is not None else ""
    if annotated and (annotated in classes or annotated in _ABSTRACT or annotated == "Sequential"):
        return True
    made: dict[str, bool] = {}

    def is_module(value: ast.expr | None) -> bool:
        if isinstance(value, ast.Tuple) and value.elts:
            return is_module(value.elts[0])
        if isinstance(value, ast.Name):
            return made.get(value.id, False)
        if isinstance(value, ast.IfExp):
            return is_module(value.body) or is_module(value.orelse)
        if not isinstance(value, ast.Call):
            return False
        dotted = _dotted(value.func, file)
        if not dotted:
            # model.to(device), build().eval()
            return isinstance(value.func, ast.Attribute) and is_module(value.func.value)
        name = dotted.rpartition(".")[2]
        if name in builders or name in classes or _LIBRARY_BUILDERS.fullmatch(dotted):
            return True
        if dotted.startswith("torch.nn.") and name[:1].isupper() and name not in ("Parameter", "Buffer"):
            return True
        return isinstance(value.func, ast.Attribute) and is_module(value.func.value)

    nodes = list(_own_nodes(node))
    for item in nodes:
        if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
            name = item.targets[0].id
            made[name] = made.get(name, False) or is_module(item.value)
    return any(isinstance(item, ast.Return) and is_module(item.value) for item in nodes)


def _own_nodes(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function in the order of the text, without those of functions in it."""
    for child in node.body:
        yield from _walk(child)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.rpartition(".")[2]
    return ""


def _dotted(node: ast.expr, file: _File) -> str:
    """'torch.nn.Linear' for `nn.Linear` under the file's imports; '' for what is no dotted name."""
    parts: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        parts.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name):
        return ""
    parts.append(file.imports.get(current.id, current.id))
    return ".".join(reversed(parts))
