"""What a user typed: a model to build and trace, or source to read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from tclint.core.errors import UsageError
from tclint.core.text import with_article

_FILE_TARGET = re.compile(r".+\.py:[^\W\d]\w*(\.[^\W\d]\w*)*", re.DOTALL)
_MODULE_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

LIBRARIES = ("timm", "hf")
"""Prefixes of models that are named, as in 'timm:resnet50' (tclint/tracing/worker/libraries.py)."""
_LIBRARY_TARGET = re.compile(rf"({'|'.join(LIBRARIES)}):[\w./\\~-]+")

RECIPE_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
"""Endings of files that may be configurations of a training."""

SCRIPT_SUFFIXES = (".sh", ".bash", ".slurm")
"""Endings of files that may start one."""

WEIGHT_FILES = frozenset(
    {".bin", ".ckpt", ".gguf", ".npz", ".onnx", ".pkl", ".pt", ".pth", ".t7", ".tar", ".th", ".weights"}
    | {".safetensors"}
)
"""Endings of files that hold the weights of a model, mostly."""
_MODEL_FILES = WEIGHT_FILES - {".pkl", ".tar"} | {".pt2", ".torchscript", ".ts"}
"""Endings of files that hold a model without its code, or only its weights."""


ONNX = (
    "ONNX model knows nothing of the PyTorch code that findings point at; name what builds the model, as "
    "'path/file.py:callable'"
)


def is_model_target(text: str) -> bool:
    """True for 'path/model.py:build_model', 'package.module:Class', 'timm:resnet50' and 'model.pt2'.

    Only such an explicit target ever runs user code, so a path of Python that exists under exactly this name
    is read, not run.
    """
    if os.path.exists(text):
        return is_model_file(text)
    patterns = (_FILE_TARGET, _MODULE_TARGET, _LIBRARY_TARGET)
    return any(pattern.fullmatch(text) for pattern in patterns)


def is_model_file(text: str) -> bool:
    """Whether the text is the name of a file that holds a model, or weights, and no Python."""
    return os.path.splitext(text)[1].lower() in _MODEL_FILES and os.path.isfile(text)


def is_recipe(path: str) -> bool:
    """Whether a file may set up a training without being Python, by its name."""
    return path.lower().endswith((*RECIPE_SUFFIXES, *SCRIPT_SUFFIXES))


def is_recipe_file(text: str) -> bool:
    """Whether the text is the name of a file that may set up a training without being Python."""
    return is_recipe(text) and os.path.isfile(text)


def is_path(given: Any) -> bool:
    """Whether it names a target."""
    return isinstance(given, str | bytes | os.PathLike)


def targets_of(given: Any, traced: type[Any] | None = None) -> list[Any]:
    """One target, or several, as a list of texts and of what is no text: models and what builds them.

    Args:
        traced: the class of models that are traced already.

    Raises:
        UsageError: something is neither.
    """
    if not isinstance(given, str | bytes) and isinstance(given, Iterable) and not _is_model(given):
        return [_target_of(one, traced) for one in given]
    return [_target_of(given, traced)]


def _target_of(given: Any, traced: type[Any] | None) -> Any:
    if is_path(given):
        return os.fsdecode(given)
    if _is_model(given) or callable(given) or (traced is not None and isinstance(given, traced)):
        return given
    raise not_a_target(given)


def not_a_target(given: object) -> UsageError:
    """What is said of a value that is neither a model nor names or builds one."""
    if type(given).__name__ == "ModelProto":
        return UsageError(f"An {ONNX}.")
    return UsageError(
        f"A target is a path, 'file.py:callable', a model, or a callable that builds one; {given!r:.60} is "
        f"{with_article(type(given).__name__)}."
    )


def _is_model(given: Any) -> bool:
    torch = sys.modules.get("torch")  # who has a module has imported it
    return torch is not None and issubclass(type(given), torch.nn.Module)
