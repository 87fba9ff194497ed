"""The points of a sweep: `--arg width=256:1024:64 --arg heads=4,8,16` and the condition on them."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tclint.config.settings import Settings
from tclint.core.errors import UsageError, closest
from tclint.tracing.worker.target_arguments import literal, parse_arguments

BATCH = "batch"
"""Name of the axis that `--batch` makes."""
MOST_POINTS = 1_000_000
_RANGE = re.compile(r"(?P<start>\d{1,18}):(?P<stop>\d{1,18})(:(?P<step>\d{1,18}))?")
_LIKE_A_RANGE = re.compile(r"-?\d[\d.e-]*(:-?\d[\d.e-]*){1,2}")
_PIECE = re.compile(r"""(?:"[^"]*"|'[^']*'|[^,])+""")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))

Values = tuple[Any, ...]
"""A point: one value per axis."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An argument that is swept."""

    name: str
    texts: Mapping[str, str]
    """The values as `--arg` takes them, by their reprs: 1, 1.0 and True are three."""
    values: Values

    @property
    def is_size(self) -> bool:
        """Whether all values are whole numbers above zero, as sizes of dims are."""
        return all(type(value) is int and value > 0 for value in self.values)


@dataclass(frozen=True, slots=True)
class Grid:
    """All points that are priced, in the order of the axes."""

    axes: tuple[Axis, ...]
    points: tuple[Values, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def text_at(self, position: int) -> str:
        """A point as people read it: 'width=512 heads=8'."""
        return " ".join(map("{}={}".format, self.names, self.points[position]))

    def settings_at(self, point: Values, settings: Settings) -> Settings:
        """The settings that the point is traced under."""
        texts = list(settings.arguments)
        batch = settings.batch
        for axis, value in zip(self.axes, point, strict=True):
            if axis.name == BATCH:
                batch = value
            else:
                texts.append(f"{axis.name}={axis.texts[repr(value)]}")
        return replace(settings, arguments=tuple(texts), batch=batch)


def grid_of(settings: Settings, batch: str, where: str) -> tuple[Grid, Settings]:
    """The grid that the settings' arguments and `--batch` span, and the settings without what is swept.

    A value 'a:b' or 'a:b:step' is a range that includes b, a value with commas outside brackets a list.

    Raises:
        UsageError: nothing is swept, there are too many points, or none is left.
    """
    axes: list[Axis] = []
    fixed: dict[str, str] = {}
    for spec in parse_arguments(settings.arguments):
        texts = _texts(spec.text, f"--arg {spec.name}")
        if len(texts) == 1:
            fixed[spec.name] = texts[0] if _RANGE.fullmatch(spec.text) else spec.text
        else:
            axes.append(_axis(spec.name, texts))
    if batch:
        if any(axis.name == BATCH for axis in axes) or BATCH in fixed:
            raise UsageError("--batch and --arg batch exclude each other; give one of them.")
        axes.append(_batch_axis(batch))
    if not axes:
        raise UsageError(
            "There is nothing to sweep: give an argument several values, such as --arg width=256:1024:64 or "
            "--arg heads=4,8,16."
        )
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_POINTS:
        raise UsageError(f"The sweep has {count:,} points, more than {MOST_POINTS:,}; take larger steps.")
    known = {name: literal(text) for name, text in fixed.items()}
    points = _kept(axes, known, where)
    kept_arguments = tuple(f"{name}={text}" for name, text in fixed.items())
    return Grid(tuple(axes), points), replace(settings, arguments=kept_arguments, batch=None)


def _kept(axes: Sequence[Axis], fixed: Mapping[str, object], where: str) -> tuple[Values, ...]:
    points = itertools.product(*(axis.values for axis in axes))
    if not where:
        return tuple(points)
    condition = Condition(where)
    names = [axis.name for axis in axes]
    kept = tuple(
        point for point in points if condition.holds({**fixed, **dict(zip(names, point, strict=True))})
    )
    if not kept:
        raise UsageError(f"--where {where!r} is true for no point; the sweep would be empty.")
    return kept


def _axis(name: str, texts: Sequence[str]) -> Axis:
    values: dict[str, Any] = {}
    distinct: dict[str, str] = {}
    for text in texts:
        value = literal(text)
        values.setdefault(repr(value), value)
        distinct.setdefault(repr(value), text)
    return Axis(name, distinct, tuple(values.values()))


def _batch_axis(text: str) -> Axis:
    axis = _axis(BATCH, _texts(text, "--batch"))
    if not axis.is_size:
        raise UsageError(f"--batch takes sizes such as 8,16 or 8:64:8; you gave {text!r}.")
    return axis


def _texts(text: str, option: str) -> list[str]:
    """The values that a text stands for: those of a range, the parts between commas, or itself."""
    span = _RANGE.fullmatch(text)
    if span is not None:
        start, stop, step = int(span["start"]), int(span["stop"]), int(span["step"] or 1)
        if step < 1 or stop < start:
            raise UsageError(f"{option}={text} is an empty range: write START:STOP:STEP, as in 256:1024:64.")
        if (stop - start) // step >= MOST_POINTS:
            raise UsageError(f"{option}={text} has more than {MOST_POINTS:,} values; take larger steps.")
        return [str(value) for value in range(start, stop + 1, step)]
    if _LIKE_A_RANGE.fullmatch(text):
        raise UsageError(
            f"{option}={text[:60]} is no range of whole numbers such as 256:1024:64; list other values with "
            "commas."
        )
    parts: list[str] = []
    pending = ""
    for match in _PIECE.finditer(text):
        piece = match[0]
        pending = f"{pending},{piece}" if pending else piece
        if all(pending.count(left) == pending.count(right) for left, right in _BRACKETS):
            parts.append(pending.strip())
            pending = ""
    if pending or not parts:
        return [text]
    return parts


_EVALUATED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt,
    ast.GtE, ast.Constant,
)  # fmt: skip


class Condition(ast.NodeTransformer):
    """A condition on numbers by name: 'width % heads == 0 and width <= 64 * heads'.

    Raises:
        UsageError: the text is more than names, numbers, arithmetic, comparisons, and, or, not.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: dict[str, None] = {}
        try:
            tree = ast.parse(text.strip(), mode="eval")
            tree.body = self.visit(tree.body)
            self._code = compile(tree, "--where", "eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise self._refused("cannot be read") from None

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether it is true of these values.

        Raises:
            UsageError: a name is missing or stands for no number, or it divides by zero.
        """
        for name in self._names:
            if name not in values:
                near = closest(name, list(values)) or f" The arguments are {', '.join(values)}."
                raise self._refused(f"names {name!r}, which is no argument of this sweep", near)
            if not isinstance(values[name], int | float):
                raise self._refused(f"uses {name!r}, which is no number")
        try:
            return bool(eval(self._code, {"__builtins__": {}}, dict(values)))
        except ZeroDivisionError:
            shown = ", ".join(f"{name}={value}" for name, value in values.items())
            raise self._refused(f"divides by zero at {shown}") from None

    def visit(self, node: ast.AST) -> Any:
        """The tree with 'config.n_layer' as one name; what may not be evaluated is refused."""
        name = _name(node)
        if name:
            self._names[name] = None
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        parts = [node, *getattr(node, "ops", ()), getattr(node, "op", node)]
        is_number = not isinstance(node, ast.Constant) or isinstance(node.value, int | float)
        if not is_number or not all(isinstance(part, _EVALUATED) for part in parts):
            raise self._refused(f"has {ast.unparse(node)!r}, which is not evaluated")
        return self.generic_visit(node)

    def _refused(self, why: str, hint: str = "") -> UsageError:
        hint = hint or " Write numbers and arguments with + - * / // %, comparisons, and, or, not."
        return UsageError(f"--where {self._text!r} {why}.{hint}")


def _name(tree: ast.AST) -> str:
    """The argument that 'width' or 'config.n_layer' names, '' for what is no name."""
    if isinstance(tree, ast.Attribute):
        before = _name(tree.value)
        return f"{before}.{tree.attr}" if before else ""
    return tree.id if isinstance(tree, ast.Name) else ""
