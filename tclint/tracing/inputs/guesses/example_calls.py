"""Inputs as the file of a model calls it itself: in its `if __name__ == "__main__":`, demos, docstrings."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tclint.core.examples import README, python_blocks
from tclint.graph.ops import Assumption, Site
from tclint.tracing.inputs.forward import ARITHMETIC, called, project_folders
from tclint.tracing.inputs.given import ADVICE, CallInputs, described, with_batch
from tclint.tracing.values.user_code import tree_of

_META = torch.device("meta")
_MOST_RANKS = 6
_TOY_ELEMENTS = 1024
"""Fewer of an example than this are there to show that the code runs."""
_TOY_TOKENS = 64

_FLOATS = frozenset({"rand", "randn", "zeros", "ones", "empty", "Tensor", "FloatTensor"})
_PASSED_ON = frozenset(
    {"Variable", "cuda", "to", "cpu", "float", "eval", "train", "requires_grad_", "contiguous"}
)
"""What returns the tensor or the model that it is given."""


@dataclass(frozen=True)
class ModelFiles:
    """Where a model comes from."""

    paths: tuple[str, ...]
    """The target's file, and the file of its class."""
    names: frozenset[str]
    """What builds it there: its class, the target's callable."""


def example_calls(origin: ModelFiles, batch: int) -> Iterator[CallInputs]:
    """The inputs of every call of the model in its file whose shapes are plain numbers, in their order.

    Args:
        batch: takes the place of the leading size that all tensors share: demos mostly have one example.
    """
    for path, tree, where in (*_own_files(origin), *_readme(origin)):
        functions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for body in (tree.body, *(function.body for function in functions)):
            scope = Scope(origin.names)
            for statement in in_order(body):
                scope.read(statement)
            for line, args, kwargs in scope.found:
                if not any(map(_is_toy, (*args, *kwargs.values()))):
                    yield _as_inputs(args, kwargs, Site(path, line), batch, where)


def _own_files(origin: ModelFiles) -> Iterator[tuple[str, ast.Module, str]]:
    for path in origin.paths:
        tree = tree_of(path)
        yield path, tree, "its own file"
        for example in _in_docstrings(tree):
            yield path, example, "a docstring"


README_CALL = "the README"
_PROMPT = re.compile(r"^[ \t]*(?:>>>|\.\.\.) ?(.*)$", re.MULTILINE)
_BLOCK = re.compile(r"::[ \t]*\n\n+((?:[ \t]+[^\n]*(?:\n|$)|\n)+)")
"""What is indented behind two colons."""


def _in_docstrings(tree: ast.Module) -> Iterator[ast.Module]:
    """Each example of the docstrings of a file and its classes, at its lines."""
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    owners: list[ast.Module | ast.ClassDef] = [tree, *classes]
    for owner in owners:
        text = ast.get_docstring(owner)
        if text is None:
            continue
        raw = ast.get_docstring(owner, clean=False) or ""
        first = owner.body[0].lineno + raw[: len(raw) - len(raw.lstrip())].count("\n")
        prompts = "\n".join(_PROMPT.findall(text))
        blocks = [(found[1], text.count("\n", 0, found.start(1))) for found in _BLOCK.finditer(text)]
        for code, line in [(prompts, text.partition(">>>")[0].count("\n")), *blocks]:
            with contextlib.suppress(SyntaxError, ValueError):
                yield ast.increment_lineno(ast.parse(textwrap.dedent(code)), first - 1 + line)


def _readme(origin: ModelFiles) -> Iterator[tuple[str, ast.Module, str]]:
    """Each example of the README that is nearest to the target's file, at its lines."""
    for folder in project_folders(os.path.dirname(origin.paths[0]) or "."):
        path = os.path.normpath(os.path.join(folder, README))
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for lines, code in python_blocks(text):
            with contextlib.suppress(SyntaxError, ValueError):
                yield path, ast.increment_lineno(ast.parse(code), lines), README_CALL
        return


def _is_toy(tensor: torch.Tensor) -> bool:
    is_single = tensor.dim() == 1  # a class or a step for each example
    least = _TOY_ELEMENTS if tensor.is_floating_point() else _TOY_TOKENS
    return not is_single and tensor[:1].numel() < least


def _as_inputs(args: list[Any], kwargs: dict[str, Any], site: Site, batch: int, where: str) -> CallInputs:
    made = CallInputs(tuple(args), kwargs, source="inferred")
    values = (*args, *kwargs.values())
    leading = {value.shape[0] if value.dim() else 0 for value in values}
    if len(leading) == 1 and 0 not in leading:
        made = with_batch(made, batch)
    listed = ", ".join(described(value) for value in (*made.args, *made.kwargs.values()))
    what = f"{'input' if len(values) == 1 else 'inputs'} {listed}, as {where} calls it{ADVICE}"
    is_shown = where != README_CALL
    return replace(made, assumptions=(Assumption(what, site),), basis="stated", is_shown=is_shown)


def in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that are run with a scope's names, blocks opened."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if any(blocks):
            for block in blocks:
                yield from in_order(block)
        else:
            yield statement


@dataclass
class Scope:
    """What is known of the names in a block that calls the model."""

    names: Collection[str]
    values: dict[str, Any] = field(default_factory=dict)
    """Tensors, numbers and tuples of them by name."""
    models: set[str] = field(default_factory=set)
    found: list[tuple[int, list[Any], dict[str, Any]]] = field(default_factory=list)

    def read(self, statement: ast.stmt) -> None:
        """Take in the statement that runs next."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                self._call(node)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._bind(statement.targets[0], statement.value)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for index, item in enumerate(target.elts):
                self._bind(item, parts[index] if len(parts) == len(target.elts) else ast.Constant(None))
        elif isinstance(target, ast.Name):
            self.values.pop(target.id, None)
            self.models.discard(target.id)
            if self._is_model(value):
                self.models.add(target.id)
            elif (found := self._value(value)) is not None:
                self.values[target.id] = found

    def _is_model(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.models
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PASSED_ON:
            return self._is_model(node.func.value)
        return called(node) in self.names

    def runs(self, node: ast.Call) -> bool:
        """Whether a call runs the model."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "forward":
            function = function.value
        return self._is_model(function)

    def _call(self, node: ast.Call) -> None:
        args, kwargs = node.args, {word.arg: word.value for word in node.keywords}
        if not self.runs(node) or None in kwargs:
            return
        values = [self._value(argument) for argument in args]
        named = {str(name): self._value(value) for name, value in kwargs.items()}
        if values or named:
            tensors = [isinstance(value, torch.Tensor) for value in (*values, *named.values())]
            if all(tensors):
                self.found.append((node.lineno, values, named))

    def _value(self, node: ast.expr) -> Any:
        """A tensor, a number or a tuple of numbers; None for everything else."""
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.Name):
            return self.values.get(node.id)
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = tuple(self._value(item) for item in node.elts)
            return parts if all(isinstance(part, int) for part in parts) else None
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            left, right = self._value(node.left), self._value(node.right)
            if isinstance(left, int) and isinstance(right, int) and right:
                return ARITHMETIC[type(node.op)](left, right)
        return self._tensor(node) if isinstance(node, ast.Call) else None

    def _tensor(self, node: ast.Call) -> torch.Tensor | None:
        name = called(node)
        if name in _PASSED_ON:
            inner = node.func.value if isinstance(node.func, ast.Attribute) else next(iter(node.args), None)
            value = None if inner is None else self._value(inner)
            return value if isinstance(value, torch.Tensor) else None
        if name not in _FLOATS and name != "randint":
            return None
        given: list[Any] = []
        for argument in (*node.args, *(word.value for word in node.keywords if word.arg == "size")):
            is_starred = isinstance(argument, ast.Starred)
            value = self._value(argument.value if isinstance(argument, ast.Starred) else argument)
            given += value if is_starred and isinstance(value, tuple) else [value]
        shape = next(
            (value for value in given if isinstance(value, tuple)), () if name == "randint" else tuple(given)
        )
        dtype = next((word.value for word in node.keywords if word.arg == "dtype"), None)
        is_integer = name == "randint" or getattr(dtype, "attr", "") in ("long", "int64", "int", "int32")
        is_shape = 0 < len(shape) <= _MOST_RANKS and all(type(part) is int and part > 0 for part in shape)
        kind = torch.int64 if is_integer else torch.float32
        return torch.empty(shape, dtype=kind, device=_META) if is_shape else None
