"""Models that were saved whole, by torch.export; what other files of models are is said."""

from __future__ import annotations

import io
import zipfile
from pathlib import PurePath

import torch
from torch.export import ExportedProgram

from tclint.core.errors import TargetError
from tclint.core.target import ONNX

_NAME_A_BUILDER = "name what builds the model, as 'path/file.py:callable'"


def load_program(path: str) -> ExportedProgram:
    """The program in a file that torch.export.save wrote.

    Raises:
        TargetError: the file holds something else, or torch cannot read it.
    """
    if PurePath(path).suffix.lower() == ".onnx":
        raise TargetError(f"{path}: an {ONNX}.")
    try:
        # Read here, so that the cache of traces learns which file this rests on.
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}.") from None
    if PurePath(path).suffix.lower() != ".pt2":
        kind = "a TorchScript archive" if _is_torchscript(content) else "a file of weights"
        raise TargetError(f"{path} is {kind}, which holds no Python to trace; {_NAME_A_BUILDER}.")
    try:
        return torch.export.load(io.BytesIO(content))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise TargetError(
            f"torch {torch.__version__} cannot load {path}: {reason}; save it again with this version."
        ) from error


def _is_torchscript(content: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return any("/code/" in name for name in archive.namelist())
    except zipfile.BadZipFile:
        return False
