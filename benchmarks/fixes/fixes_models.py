"""The models whose padding findings are to be fixed: fixtures, hand-written styles, public repositories.

Each is a file with build_model and example_inputs, as a user writes one: a fixture as it is or with one
default made odd, a function of padding_styles.py, or a model of benchmarks/inputs built with its repository's
sizes.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "inputs")]

from inputs_rows import Row, read_rows  # noqa: E402

from tclint.tracing.inputs.specs import parse_input  # noqa: E402
from tclint.tracing.worker.project_files import package_of  # noqa: E402

SKIPPED = ("gpt3_175b",)
"""GPT-2 at other sizes."""
ODD_STEPS = (1, 2, 4, 12, 20, 30)
SMALLEST = 16
"""Smaller defaults are counts of layers and heads, not widths."""
ODD_STEP = 4
"""What a size of a repository's model is made odd by: heads often divide it."""
MOST_ODD = 2
"""Widths that are made odd of the first model of a repository."""
WIDTH = re.compile(
    r"dim|width|hidden|channels|emb|features|filters|d_|vocab|token|^n_?f|nhid|ninp|planes|inner|base|mlp|"
    r"^C$|^ch$"
)
GIVEN = re.compile(r"mel|spec|^in_|input|image|img|class|cond|label|max")
"""Names of sizes that the data has."""
STYLE_BATCH = 256
"""Styles have inputs of a few samples, whose step is all launches."""
FILE = "tclint_target_{}.py"


@dataclass(frozen=True)
class Model:
    """A target in a folder of its own."""

    name: str
    source: str
    """'fixture', 'odd fixture', 'style', 'repository' or 'odd repository'."""
    folder: Path
    """The working directory."""
    target: str
    mode: str = "train"
    text: str = ""
    """The content of the target's file, where it has to be written first."""
    batch: int | None = None
    """None: that of the inputs."""
    odd: tuple[str, int] | None = None
    """The argument that was made odd, and its size: one that the model takes is enough."""
    copy_of: Path | None = None
    """Copied into the folder first."""
    changed: tuple[str, str] = ("", "")
    """A file of the copy, and its text."""

    def write(self) -> None:
        """Make the target's file, in a copy of the repository where there has to be one."""
        if self.copy_of is not None and not self.folder.exists():
            shutil.copytree(self.copy_of, self.folder, ignore=shutil.ignore_patterns("tclint_target_*"))
            (self.folder / self.changed[0]).write_text(self.changed[1], encoding="utf-8")
        if self.text:
            file = self.folder / self.target.rpartition(":")[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text, encoding="utf-8")


def models(scratch: Path, checkouts: Path | None) -> Iterator[Model]:
    """All of them; those of repositories that are not checked out have no folder and are left out."""
    yield from _fixtures(scratch)
    yield from _styles(scratch)
    done = set()
    for row in read_rows() if checkouts is not None else ():
        model = _of_row(row, checkouts)
        if model is not None:
            yield model
            if row.repository not in done:
                yield from islice(_odd_of_row(row, model, scratch), MOST_ODD)
            done.add(row.repository)


def missing(checkouts: Path | None) -> list[str]:
    """Repositories that are not checked out."""
    rows = (row for row in read_rows() if row.repository)
    return sorted({row.repository for row in rows if checkouts is None or row.folder(checkouts) is None})


def _fixtures(scratch: Path) -> Iterator[Model]:
    for path in sorted((ROOT / "fixtures").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.stem in SKIPPED or "def build_model(" not in text:
            continue
        yield Model(path.stem, "fixture", scratch / path.stem, f"{path.name}:build_model", text=text)
        for name, default, step in _odd_defaults(text):
            size = default + step
            yield Model(
                f"{path.stem} with {name}={size}",
                "odd fixture",
                scratch / f"{path.stem}-{name}-{size}",
                f"{path.name}:build_model",
                text=_with_default(text, name, default, size),
                odd=(f"{path.stem}.{name}", size),
            )


def _odd_defaults(text: str) -> Iterator[tuple[str, int, int]]:
    """Arguments of build_model that hold a size, and what makes each odd."""
    [function] = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == "build_model"
    ]
    given = function.args
    positional = given.args[len(given.args) - len(given.defaults) :]
    for argument, default in [
        *zip(positional, given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]:
        if isinstance(default, ast.Constant) and type(default.value) is int and default.value >= SMALLEST:
            for step in ODD_STEPS:
                if (default.value + step) % 8:
                    yield argument.arg, default.value, step


def _with_default(text: str, name: str, old: int, new: int) -> str:
    start = text.index("def build_model(")
    pattern = re.compile(rf"\b{name}: int = {old:_}\b|\b{name}: int = {old}\b")
    return text[:start] + pattern.sub(f"{name}: int = {new}", text[start:])


def _styles(scratch: Path) -> Iterator[Model]:
    from padding_styles import STYLES

    text = (BENCHMARKS / "padding_styles.py").read_text(encoding="utf-8")
    for index, style in enumerate(STYLES):
        ending = (
            f"\n\nbuild_model = STYLES[{index}].build_model\n"
            f"example_inputs = STYLES[{index}].example_inputs\n"
        )
        folder = scratch / f"style-{style.name}"
        yield Model(
            style.name, "style", folder, "styles.py:build_model", text=text + ending, batch=STYLE_BATCH
        )


def _of_row(row: Row, checkouts: Path | None) -> Model | None:
    folder = row.folder(checkouts) if row.repository else None
    if folder is None:
        return None
    container, _, attribute = row.target.rpartition(":")
    beside = folder
    module = container
    if container.endswith(".py"):
        path = folder / container
        if not path.is_file():
            return None
        package = package_of(str(path))
        beside, module = (Path(package[0]), package[1]) if package is not None else (path.parent, path.stem)
    if not all(part.isidentifier() for part in module.split(".")):
        return None  # a package that is the checkout itself, under another name
    file = beside / FILE.format(re.sub(r"\W+", "_", row.name).strip("_").lower())
    text = _wrapper(row, module, attribute)
    target = f"{os.path.relpath(file, folder)}:build_model"
    return Model(row.name, "repository", folder, target, row.mode, text)


def _odd_of_row(row: Row, model: Model, scratch: Path) -> Iterator[Model]:
    """The model with one of its widths made odd, where its call or the defaults of its class state it."""
    container, _, attribute = row.target.rpartition(":")
    places = [("", model.text)]
    if container.endswith(".py"):
        path = model.folder / container
        places.append((container, path.read_text(encoding="utf-8", errors="replace")))
    for file, text in places:
        for name, span, size in _widths(text, "" if not file else attribute.partition(".")[0]):
            if size % 8:
                continue
            odd = text[: span[0]] + str(size + ODD_STEP) + text[span[1] :]
            title = f"{model.name} with {name}={size + ODD_STEP}"
            yield replace(
                model,
                name=title,
                source="odd repository",
                folder=scratch / re.sub(r"\W+", "-", title),
                text=model.text if file else odd,
                odd=(f"{model.name}.{name}", size + ODD_STEP),
                copy_of=model.folder,
                changed=(file, odd) if file else (model.target.rpartition(":")[0], odd),
            )


def _widths(text: str, owner: str) -> Iterator[tuple[str, tuple[int, int], int]]:
    """Names, places and sizes of widths: keyword arguments of a wrapper, defaults of the one that builds."""
    tree = ast.parse(text)
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(tree):
        if not owner and isinstance(node, ast.Call):
            found += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
        of_owner = isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == owner
        if owner and of_owner:
            for function in ast.walk(node):
                if isinstance(function, ast.FunctionDef) and function.name in ("__init__", owner):
                    given = function.args.args[len(function.args.args) - len(function.args.defaults) :]
                    found += [(a.arg, v) for a, v in zip(given, function.args.defaults, strict=True)]
    for name, value in found:
        is_size = isinstance(value, ast.Constant) and type(value.value) is int and value.value >= SMALLEST
        if is_size and WIDTH.search(name) and not GIVEN.search(name):
            start = starts[value.lineno - 1] + value.col_offset
            yield name, (start, start + len(str(value.value))), value.value


def _wrapper(row: Row, module: str, attribute: str) -> str:
    """The file that somebody would write to build the row's model, with its sizes as they are stated."""
    expressions = [argument.partition("=")[2] for argument in row.arguments]
    made = {name: _input(value) for name, value in row.inputs.items()}
    names = {attribute.partition(".")[0]}
    for expression in (*expressions, *made.values()):
        bound = {
            node.id
            for node in ast.walk(ast.parse(expression, mode="eval"))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        stored = {
            node.id
            for node in ast.walk(ast.parse(expression, mode="eval"))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        names |= bound - stored - {"torch", "Namespace"} - set(dir(builtins))
    call = ",\n        ".join(row.arguments)
    inputs = ",\n        ".join(f"{name!r}: {value}" for name, value in made.items())
    if row.positional:
        inputs = ",\n        ".join(made.values())
    opened, closed = ("(", ",)") if row.positional else ("{", "}")
    return (
        "from argparse import Namespace\n\nimport torch\n"
        f"from {module} import {', '.join(sorted(names))}\n\n\n"
        f"def build_model():\n    return {attribute}(\n        {call}\n    )\n\n\n"
        f"def example_inputs():\n    return {opened}\n        {inputs}\n    {closed}\n"
    )


def _input(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_input(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_input(item) for item in value) + "]"
    if isinstance(value, str):
        if value.startswith("="):
            return value[1:]
        spec = parse_input(value)
        return f"torch.zeros({spec.shape}, dtype=torch.{spec.dtype})"
    return repr(value)
