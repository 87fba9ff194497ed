"""Lists what could be linted as a model in a file, by reading alone: module classes and functions.

A class is left out if it is a part: another module builds it, derives from it without additions, or gets it
as an argument. A function that needs arguments is left out if a module calls it. Losses, wrappers of a given
model and the like never count as models. Classes with names of layers, and code in tests, are listed only if
there is nothing else. Imported classes of other packages are known only by name.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tclint.engine.model_listing.builders import ABSTRACT, Modules
from tclint.engine.model_listing.files import (
    EXAMPLES,
    ListedProject,
    ModelClass,
    ModelFile,
    names_in,
    needs,
    read,
)
from tclint.source.project.scripts import Scripts

_NO_MODEL = re.compile(
    r"(?i:\w*(loss(es)?|criterion|matcher|tokeni[sz]er?|dataset|(data)?loader|optimi[sz]er|scheduler|metrics?)"
    r"|\w*(callback|postprocess(or)?|wrapper|data_?parallel|augment(ation|er)?|activation|collator)"
    r"|postprocess\w*|get_tokeni[sz]er\w*)"
    r"|\w*(DDP|EMA|Ema)"
)
_LAYER = re.compile(
    r"\w*(Attention|Block|Bottleneck|Conv(\dd)?|ConvTranspose\dd|Drop(Path|out)|Embed(ding|der)?|FeedForward\w*|FFN|Head"
    r"|[GR]?E?L[Uu]|ReLU|SiLU|S?wish|Mish|Layer|Linear|Norm(\dd)?|Pad(ding)?|Pooler|Pooling|Resize|Scale|Stem"
    r"|Position(al)?_?(Embedding|Encoding)\w*|position_encoding|(Up|Down)_?[Ss]ampl(e|er|ing))s?(\d|_\w*)?"
    r"|MLP|Mlp|Pool|Residual|Identity\w*"
)
_LAYER_FILES = frozenset(
    {"activation", "activations", "blocks", "buildingblocks", "layers", "network_blocks"}
)
_LOSS_FILES = frozenset({"loss", "losses"})
_GIVEN_MODELS = re.compile(r"(\w*_)?(model|modules?)|fn|func")
_CHANGED_MODELS = re.compile(r"(\w*_)?net(work)?|conv|bn")
"""Names of arguments that take a model; a class that needs one wraps it, and a function changes it."""


@dataclass(frozen=True)
class Candidate:
    """A callable that can be a target."""

    target: str
    """'model.py:build_model', from the working directory."""
    name: str
    kind: Literal["function", "class"]
    path: str
    line: int
    needs: tuple[str, ...]
    """Arguments without a default, which --arg has to give."""
    inputs: str | None
    """The name in the file that provides inputs; None: they are inferred."""
    certain: bool
    """False if only its name suggests that it builds a model."""
    makes: str = ""
    """The class that it builds without arguments (or is itself), as 'path:Class'."""
    adds_nothing: bool = False
    """Whether it returns the built model unchanged."""


def list_models(
    paths: Sequence[str], contents: Mapping[str, bytes] | None = None
) -> tuple[list[Candidate], list[str]]:
    """The candidates in Python files, and the files that cannot be read.

    Within a file, candidates without arguments come first, and functions before classes.

    Args:
        contents: path -> bytes to use instead of those on the disk.
    """
    read_files = {path: read(path, (contents or {}).get(path)) for path in paths}
    unread = [path for path, file in read_files.items() if file is None]
    files = [file for file in read_files.values() if file is not None]
    listed = [file for file in files if not _is_test(file.path)] or files
    listing = _Listing(ListedProject([*listed, *_imported(read_files)]))
    found: list[Candidate] = []
    for file in listed:
        candidates = [*listing.functions_of(file), *listing.classes_of(file)]
        found += sorted(
            candidates, key=lambda candidate: (bool(candidate.needs), candidate.kind != "function")
        )
    models = [candidate for candidate in found if not _is_layer(candidate)]
    return models or found, unread


_MOST_IMPORTED = 60


def _imported(known: Collection[str]) -> list[ModelFile]:
    """The files of the project that files import: they tell what is a model, and are not listed."""
    given = {os.path.abspath(path) for path in known}
    names = dict.fromkeys(
        other for path in sorted(given) for other in sorted(Scripts.around(path).imported_by(path))
    )
    others = [path for path in names if path not in given][:_MOST_IMPORTED]
    return [file for path in others if (file := read(path)) is not None]


class _Listing:
    """The module classes and builders of a project, and which of them to list."""

    def __init__(self, project: ListedProject) -> None:
        self.project = project
        self.known = Modules(project)
        self.parts = self._parts()

    # --- what is a part

    def _parts(self) -> set[ModelClass | ast.FunctionDef]:
        parts: set[ModelClass | ast.FunctionDef] = set()
        for item in self.known.classes:
            if self._is_wrapper(item):
                continue
            bases = [base for name in item.bases if (base := self.known.base(item, name)) is not None]
            named = self._named(item.file, item.node.body) - {item, *bases}
            if not (item.trains_itself and len(named) == 1):  # the model whose training it holds
                parts |= named
            parts |= {base for base in bases if not base.has_forward or _is_abstract(base.node.name)}
        for file in self.project.files:
            for node in file.functions.values():
                for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
                    built = self.known.find(file, file.dotted(call.func))
                    if built is not None and not self._is_wrapper(built):
                        given = [*call.args, *(keyword.value for keyword in call.keywords)]
                        parts |= self._classes_in(file, given) - {built}
        return parts

    def _named(self, file: ModelFile, nodes: Sequence[ast.AST]) -> set[ModelClass | ast.FunctionDef]:
        """The module classes, and the builders with arguments, that code names, with their classes."""
        found: set[ModelClass | ast.FunctionDef] = {*self._classes_in(file, nodes)}
        for dotted in set(names_in(file, *nodes)):
            function = self.project.find_function(file, dotted)
            if function in self.known.builders and (needs(function) or function.args.vararg):
                found |= {function, *self._classes_in(file, function.body)}
        return found

    def _classes_in(self, file: ModelFile, nodes: Sequence[ast.AST]) -> set[ModelClass]:
        items = (self.known.find(file, dotted) for dotted in names_in(file, *nodes))
        return {item for item in items if item is not None}

    # --- functions

    def functions_of(self, file: ModelFile) -> Iterator[Candidate]:
        is_hub = os.path.basename(file.path) == "hubconf.py"
        for name, node in file.functions.items():
            if name.startswith(("_", "test_")) or name in EXAMPLES or node in self.parts:
                continue
            certain = self.known.builders.get(node, False) or is_hub
            if not _wraps(node, file.path, needs(node)) and (certain or node in self.known.builders):
                made = self._made_as_it_is(file, node)
                yield replace(
                    _candidate(file, name, "function", node.lineno, needs(node), certain),
                    makes=_identity(made or self._only_class_made(file, node)),
                    adds_nothing=made is not None,
                )

    def _made_as_it_is(self, file: ModelFile, node: ast.FunctionDef, depth: int = 3) -> ModelClass | None:
        """The class of which a function only makes and returns an instance, without arguments."""
        body = [item for item in node.body if not _is_text(item)]
        if len(body) != 1 or not isinstance(body[0], ast.Return) or depth == 0:
            return None
        call = body[0].value
        if not isinstance(call, ast.Call) or call.args or call.keywords:
            return None
        dotted = file.dotted(call.func)
        made = self.known.find(file, dotted)
        if made is not None:
            return made
        other = self.project.find_function(file, dotted) if dotted else None
        of = next((one for one in self.project.files if other in one.functions.values()), None)
        return None if other is None or of is None else self._made_as_it_is(of, other, depth - 1)

    def _only_class_made(self, file: ModelFile, node: ast.FunctionDef) -> ModelClass | None:
        """The only module class that a function makes, if it is made without arguments."""
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        made = [
            (item, bool(call.args or call.keywords))
            for call in calls
            if (item := self.known.find(file, file.dotted(call.func))) is not None
        ]
        return made[0][0] if len(made) == 1 and not made[0][1] else None

    # --- classes

    def classes_of(self, file: ModelFile) -> Iterator[Candidate]:
        made = self._made_without_arguments(file)
        for name, item in file.classes.items():
            if item not in self.known.classes or item in self.parts or name.startswith("_"):
                continue
            needed = self._needs_of(item)
            # A function without arguments shows how to make a class that needs arguments.
            if needed and item in made:
                continue
            if not self._is_wrapper(item) and self._runs(item):
                candidate = _candidate(file, name, "class", item.node.lineno, needed, True)
                yield replace(candidate, makes=_identity(item), adds_nothing=True)

    def _made_without_arguments(self, file: ModelFile) -> set[ModelClass]:
        """The classes that functions of a file build without arguments, directly or through other
        functions."""
        made: set[ModelClass] = set()
        pending = [
            node for node in file.functions.values() if node in self.known.builders and not needs(node)
        ]
        seen: set[ast.FunctionDef] = set()
        while pending:
            current = pending.pop()
            seen.add(current)
            made |= self._classes_in(file, current.body)
            named = (file.functions.get(dotted) for dotted in names_in(file, *current.body))
            pending += [node for node in named if node in self.known.builders and node not in seen]
        return made

    def _lineage(self, item: ModelClass) -> Iterator[ModelClass]:
        """The class and the project's classes that it derives from."""
        seen: set[ModelClass] = set()
        unseen = [item]
        while unseen:
            current = unseen.pop(0)
            if current not in seen:
                seen.add(current)
                yield current
                unseen += [
                    base for name in current.bases if (base := self.known.base(current, name)) is not None
                ]

    def _runs(self, item: ModelClass) -> bool:
        """Whether the class or one of its bases has a forward or is a library's layer."""
        return any(
            current.has_forward
            or any(
                self.known.base(current, base) is None and base.rpartition(".")[2] not in ABSTRACT
                for base in current.bases
                if self.known.is_module(current, base)
            )
            for current in self._lineage(item)
        )

    def _is_wrapper(self, item: ModelClass) -> bool:
        return _wraps(item, item.file.path, self._needs_of(item))

    def _needs_of(self, item: ModelClass) -> tuple[str, ...]:
        return next(
            (current.own_needs for current in self._lineage(item) if current.own_needs is not None), ()
        )


def _identity(item: ModelClass | None) -> str:
    return "" if item is None else f"{item.file.path}:{item.node.name}"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _wraps(item: ModelClass | ast.FunctionDef, path: str, needed: Sequence[str]) -> bool:
    """Whether something is not a model, judging by its name or place, or needs a model as an argument."""
    name = item.name if isinstance(item, ast.FunctionDef) else item.node.name
    if _NO_MODEL.fullmatch(name) or not _LOSS_FILES.isdisjoint(Path(path).with_suffix("").parts[-2:]):
        return True
    given = [_GIVEN_MODELS, *([_CHANGED_MODELS] if isinstance(item, ast.FunctionDef) else [])]
    return any(pattern.fullmatch(one) for pattern in given for one in needed)


def _is_abstract(name: str) -> bool:
    return name.startswith(("Abstract", "Base")) or name.endswith("Base")


def _is_layer(candidate: Candidate) -> bool:
    stem = Path(candidate.path).stem.lower()
    return stem in _LAYER_FILES or _LAYER.fullmatch(candidate.name) is not None


def _is_test(path: str) -> bool:
    parts = Path(os.path.relpath(path)).parts
    return (
        any(part in ("test", "tests") for part in parts[:-1])
        or re.fullmatch(r"test_.*\.py|.*_test\.py|conftest\.py|setup\.py", parts[-1]) is not None
    )


def _candidate(
    file: ModelFile,
    name: str,
    kind: Literal["function", "class"],
    line: int,
    needed: tuple[str, ...],
    certain: bool,
) -> Candidate:
    return Candidate(f"{_container(file)}:{name}", name, kind, file.path, line, needed, file.inputs, certain)


def _container(file: ModelFile) -> str:
    """The file as a target names it: by its path, or as a module if it needs its package.

    It needs the package if it imports relatively, or if a file beside it hides the package
    (yolox/models/yolox.py).
    """
    relative = os.path.relpath(file.path)
    if relative.startswith(".." + os.sep):
        return file.path
    parts = Path(relative).with_suffix("").parts
    hidden = os.path.isfile(os.path.join(os.path.dirname(file.path), f"{parts[0]}.py"))
    if (file.is_relative or hidden) and len(parts) > 1 and all(part.isidentifier() for part in parts):
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return relative.replace(os.sep, "/")
