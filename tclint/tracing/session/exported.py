"""Programs that torch.export made, also from a file: read as they are, without running them again."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from pathlib import PurePath
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from tclint.core.errors import TargetError
from tclint.core.target import ONNX
from tclint.graph.ops import Graph, Parameter
from tclint.tracing.patches.compilers import remember_compiled
from tclint.tracing.record.fx_reader import graph_from_fx
from tclint.tracing.record.fx_writer import TensorName
from tclint.tracing.values.formats import dtype_name
from tclint.tracing.values.layers import is_module
from tclint.tracing.values.sites import SiteFinder


class Exported(nn.Module):
    """Stands for an exported program where a model is asked for."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the program returns."""
        return self.program.module()(*args, **kwargs)


def is_model(value: Any) -> bool:
    """Whether the value is a model by itself, not something that builds one."""
    return is_module(value) or isinstance(value, ExportedProgram)


def unwrapped(value: Any) -> Any:
    """The module that torch.compile wrapped; any other value as it is."""
    inner = getattr(value, "_orig_mod", None) if is_module(value) else None
    if not is_module(inner):
        return value
    remember_compiled(inner)
    return inner


def example_inputs(program: ExportedProgram) -> Any:
    """What the program was exported with: positional inputs, else keywords."""
    args, kwargs = program.example_inputs or ((), {})
    return args if args or not kwargs else kwargs


def graph_of(program: ExportedProgram, sites: SiteFinder) -> Graph:
    """The program's operators.

    Raises:
        NotReadable: it holds functions or graphs of its own.
    """
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names = {node: TensorName(parameter=name) for node, name in weights.items()}
    names |= dict.fromkeys(signature.inputs_to_lifted_tensor_constants, TensorName())
    graph = graph_from_fx(program.graph_module, names, sites)
    written = len(signature.buffers_to_mutate) + len(signature.user_inputs_to_mutate)
    parameters = [_parameter(name, tensor) for name, tensor in program.named_parameters()]
    buffers = [_parameter(name, tensor, is_buffer=True) for name, tensor in program.named_buffers()]
    return dataclasses.replace(
        graph, parameters=(*parameters, *buffers), outputs=graph.outputs[written:], fx=lambda: program.graph
    )


def _parameter(name: str, tensor: torch.Tensor, *, is_buffer: bool = False) -> Parameter:
    return Parameter(
        name,
        tuple(tensor.shape),
        dtype_name(tensor.dtype),
        trainable=not is_buffer and tensor.requires_grad,
        is_buffer=is_buffer,
    )


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
