"""Sizes that scripts beside a model state: options (`--image_size`, `--seq_len`) and crops of pictures."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from tclint.graph.ops import Assumption
from tclint.tracing.inputs.forward import called, project_folders
from tclint.tracing.inputs.given import ADVICE, CallInputs, described
from tclint.tracing.inputs.guesses.example_calls import ModelFiles
from tclint.tracing.inputs.guesses.layer_inputs import VIDEO_SIZE
from tclint.tracing.inputs.guesses.named_inputs import AUDIO_SAMPLES
from tclint.tracing.inputs.stated_sizes import IMAGE_SIZE, LENGTH_NAMES, SEQUENCE_LENGTH
from tclint.tracing.values.user_code import tree_of

_META = torch.device("meta")
_MOST_FILES = 60
_LARGEST_FILE = 300_000
_SIDES = ("img_size", "image_size", "imgsz", "im_size", "crop_size", "input_size", "resolution")
_HEIGHTS = ("img_height", "image_height", "imgh", "img_h", "height")
_WIDTHS = ("img_width", "image_width", "imgw", "img_w", "width")
_CROPS = (
    ("RandomResizedCrop", "RandomSizedCrop", "RandomCrop"),
    ("CenterCrop",),
    ("Resize", "Scale"),
)
"""Transforms of pictures whose first argument is the size that they leave, by how telling they are: what is
drawn at random trains, and what is resized may be cropped."""
_OTHER_SCRIPTS = re.compile(
    r"(?<![a-z])(test|eval|demo|vis|visuali|infer|predict|sampl|generat|export|video|bench)"
)
"""What does not train, and may show the model other sizes."""


@dataclass(frozen=True)
class StatedSize:
    """What a script has for an option by default."""

    sizes: tuple[int, ...]
    why: str
    """'train.py:12 (--image_size) says'."""


@dataclass(frozen=True)
class ProjectSizes:
    """What the scripts that name a model's file or class agree on."""

    image: StatedSize | None = None
    """Height and width."""
    length: StatedSize | None = None
    samples: StatedSize | None = None
    """The length of a waveform."""

    def applied(self, guess: CallInputs, basis: Literal["stated", "guess"]) -> CallInputs | None:
        """The guess with these sizes in place of those that nothing states; None where there are none."""
        told: list[str] = []
        beside: list[torch.Tensor] = []

        def resized(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if not value.is_meta and value.dim() == 1:
                is_length = value.numel() and bool((value == SEQUENCE_LENGTH).all())
                return torch.full_like(value, self.length.sizes[0]) if is_length and self.length else value
            found = self._sizes(value)
            if found is None:
                if value.dim() > 1:  # one value for each example has no size
                    beside.append(value)
                return value
            shape, stated = found
            told.append(stated.why)
            make = torch.empty if value.is_meta else torch.ones  # a mask of which everything counts
            return make(shape, dtype=value.dtype, device=value.device)

        args = tuple(resized(value) for value in guess.args)
        kwargs = {name: resized(value) for name, value in guess.kwargs.items()}
        if not told:
            return None
        listed = ", ".join(described(value) for value in (*args, *kwargs.values()))
        what = f"{'input' if len(args) + len(kwargs) == 1 else 'inputs'} {listed}, sized as "
        what += " and ".join(dict.fromkeys(told))
        what += f"; nothing states {', '.join(map(described, beside))}" if beside else ""
        others = guess.assumptions[:-1]
        return replace(
            guess,
            args=args,
            kwargs=kwargs,
            assumptions=(*others, Assumption(what + ADVICE)),
            basis=basis,
            is_partly_made_up=bool(beside),
        )

    def hold(self, guess: CallInputs) -> bool:
        """Whether the scripts state the height and width that pictures among some inputs have."""
        values = (*guess.args, *guess.kwargs.values())
        pictures = [value for value in values if isinstance(value, torch.Tensor) and value.dim() == 4]
        return self.image is not None and any(
            tuple(picture.shape[2:]) == self.image.sizes for picture in pictures
        )

    def _sizes(self, tensor: torch.Tensor) -> tuple[tuple[int, ...], StatedSize] | None:
        shape = tuple(tensor.shape)
        if self.image is not None and len(shape) == 4 and shape[2:] == (IMAGE_SIZE, IMAGE_SIZE):
            return (*shape[:2], *self.image.sizes), self.image
        if self.image is not None and len(shape) == 5 and shape[3:] == VIDEO_SIZE[1:]:
            return (*shape[:3], *self.image.sizes), self.image
        if self.samples is not None and len(shape) in (2, 3) and shape[-1] == AUDIO_SAMPLES:
            return (*shape[:-1], *self.samples.sizes), self.samples
        if self.length is not None and SEQUENCE_LENGTH in shape[:2] and len(shape) in (2, 3):
            axis = 1 if shape[1] == SEQUENCE_LENGTH else 0
            return (*shape[:axis], *self.length.sizes, *shape[axis + 1 :]), self.length
        return None


def project_sizes(origin: ModelFiles) -> ProjectSizes:
    """Read the scripts in the model's folder and those above it that name its file or its class."""
    options: dict[str, set[tuple[tuple[int, ...], str]]] = {}
    for path in _scripts(origin):
        file, own = os.path.basename(path), dict[str, tuple[int, ...]]()
        tree = tree_of(path)
        for name, value, line in _defaults(tree):
            own[name] = value
            options.setdefault(name, set()).add((value, f"{file}:{line} (--{name}) says"))
        for transform, value, line in _crops(tree, own):
            options.setdefault(transform, set()).add((value, f"{file}:{line} ({transform}) says"))

    def agreed(names: tuple[str, ...], count: int) -> StatedSize | None:
        for name in names:
            found = {value for value, _ in options.get(name, ())}
            if len(found) == 1:
                value = found.pop()
                sizes = value * count if len(value) == 1 else value
                if len(sizes) == count and all(size > 1 for size in sizes):
                    return StatedSize(sizes, min(why for _, why in options[name]))
        return None

    image, height, width = agreed(_SIDES, 2), agreed(_HEIGHTS, 1), agreed(_WIDTHS, 1)
    if image is None and height is not None and width is not None:
        image = StatedSize((*height.sizes, *width.sizes), f"{height.why} and {width.why}")
    for transforms in _CROPS:
        image = image or agreed(transforms, 2)
    return ProjectSizes(image, agreed(LENGTH_NAMES, 1))


_STATES_SIZES = re.compile(rb"add_argument|Crop\(|Resize\(|Scale\(")


def _scripts(origin: ModelFiles) -> Iterator[str]:
    own = origin.paths[-1]
    stem = os.path.splitext(os.path.basename(own))[0]
    module = os.path.basename(os.path.dirname(own)) if stem in ("__init__", "model", "models") else stem
    words = "|".join(map(re.escape, sorted({*origin.names, module})))
    names_it = re.compile(rf"\b(?:{words})\b".encode())
    for path in itertools.islice(_training_scripts(os.path.dirname(own) or "."), _MOST_FILES):
        try:
            text = Path(path).read_bytes() if os.path.getsize(path) <= _LARGEST_FILE else b""
        except OSError:
            continue
        if _STATES_SIZES.search(text) and (path == own or names_it.search(text)):
            yield path


def _training_scripts(folder: str) -> Iterator[str]:
    """The Python files of the model's folder, then of those above it as far as its project reaches."""
    for above in project_folders(folder):
        try:
            entries = sorted(os.scandir(above), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if entry.name.endswith(".py") and entry.is_file() and not _OTHER_SCRIPTS.search(entry.name):
                yield entry.path


_Sizes = tuple[int, ...]


def _crops(tree: ast.AST, options: Mapping[str, _Sizes]) -> Iterator[tuple[str, _Sizes, int]]:
    """Name, size and line of every transform to a size that is a number, or a name which stands for one."""
    named: Mapping[str, set[_Sizes]] | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not any(called(node) in names for names in _CROPS):
            continue
        words = (word.value for word in node.keywords if word.arg == "size")
        size = next(iter([*node.args[:1], *words]), None)
        if size is None:
            continue
        if named is None:
            named = {**_named_sizes(tree), **{name: {value} for name, value in options.items()}}
        if sizes := _whole_numbers(size) or _meant(size, named):
            yield called(node), sizes, node.lineno


def _meant(size: ast.expr, named: Mapping[str, set[_Sizes]]) -> _Sizes:
    """What a name, an attribute or an item stands for, or a pair of them; nothing where a file uses the name
    for several numbers."""
    if isinstance(size, ast.Tuple | ast.List):
        sides = [_whole_numbers(side) or _meant(side, named) for side in size.elts]
        return tuple(side[0] for side in sides) if all(len(side) == 1 for side in sides) else ()
    found = named.get(_last_name(size), set())
    return next(iter(found)) if len(found) == 1 else ()


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        key = node.slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _named_sizes(tree: ast.AST) -> dict[str, set[_Sizes]]:
    """One or two whole numbers by the names that a file gives them: of variables, attributes, keys and
    keyword arguments."""
    found: dict[str, set[_Sizes]] = {}

    def note(name: str, value: ast.expr | None) -> None:
        if name and value is not None and (sizes := _whole_numbers(value)):
            found.setdefault(name, set()).add(sizes)

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                note(_last_name(target), node.value)
        elif isinstance(node, ast.AnnAssign):
            note(_last_name(node.target), node.value)
        elif isinstance(node, ast.keyword):
            note(node.arg or "", node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                note(str(key.value) if isinstance(key, ast.Constant) else "", value)
    return found


def _whole_numbers(node: ast.expr) -> tuple[int, ...]:
    """One or two, as they are written; none for everything else."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ()
    sizes = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return sizes if 1 <= len(sizes) <= 2 and all(type(size) is int for size in sizes) else ()


def _defaults(tree: ast.AST) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Name, value and line of every option whose default is one or two whole numbers."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or called(node) != "add_argument":
            continue
        default = next((word.value for word in node.keywords if word.arg == "default"), None)
        sizes = () if default is None else _whole_numbers(default)
        if not sizes:
            continue
        for option in node.args:
            if (
                isinstance(option, ast.Constant)
                and isinstance(option.value, str)
                and option.value.startswith("--")
            ):
                yield option.value.lstrip("-").replace("-", "_").lower(), sizes, node.lineno
