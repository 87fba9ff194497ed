"""Traces a row's model on its true inputs, or on those that tclint infers, whatever way it is built."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from inputs_rows import Row, stated_tensors
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from tclint.graph.ops import Graph
from tclint.tracing import trace_callable
from tclint.tracing.inputs.given import inputs_from_specs
from tclint.tracing.inputs.specs import parse_input
from tclint.tracing.patches.environment import without_gpu
from tclint.tracing.worker.project_files import import_roots, package_of

MAX_BYTES = 1 << 30
"""Models with more weights are not run for real."""


def trace_row(row: Row, folder: Path, *, on_true_inputs: bool) -> Graph:
    """Import, build and trace the model in this process, from its folder.

    The arguments are evaluated as Python, which `--arg` may not be able to.

    Args:
        on_true_inputs: else those that are inferred.

    Raises:
        Exception: what importing, building or running it raised.
    """
    os.chdir(folder)
    with without_gpu():
        module = _import(row.target.rpartition(":")[0])
    if not on_true_inputs:
        return trace_callable(_builder(row, module))
    values = {name: _value(item, module) for name, item in row.inputs.items()}
    if row.positional:
        return trace_callable(_builder(row, module), tuple(values.values()))
    return trace_callable(_builder(row, module), (), values)


def run_row(row: Row, folder: Path) -> tuple[dict[str, tuple[int, ...]], int]:
    """Shapes of the true inputs and FLOPs of the forward as plain PyTorch runs and counts it, on the CPU.

    For models that tclint cannot trace on their true inputs: that is not the fault of the truth.

    Raises:
        Exception: what importing, building or running it raised.
    """
    os.chdir(folder)
    module = _import(row.target.rpartition(":")[0])
    build = _builder(row, module)
    with torch.device("meta"):
        sizes = [parameter.numel() * parameter.element_size() for parameter in build().parameters()]
    if sum(sizes) > MAX_BYTES:
        raise MemoryError("too large to be run for real")
    model = build()
    values = {name: _value(item, module) for name, item in row.inputs.items()}
    real = pytree.tree_map_only(
        torch.Tensor,
        lambda tensor: torch.zeros_like(tensor, device="cpu") if tensor.is_meta else tensor,
        values,
    )
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if row.positional:
            model(*real.values())
        else:
            model(**real)
    stated = {name: spec.shape for name, spec in stated_tensors(row.inputs) if spec is not None}
    return stated, counter.get_total_flops()


def _builder(row: Row, module: ModuleType) -> Callable[[], Any]:
    def build() -> Any:
        function: Any = module
        for part in row.target.rpartition(":")[2].split("."):
            function = getattr(function, part)
        parts = (argument.partition("=") for argument in row.arguments)
        built = function(**{name: _evaluated(text, module) for name, _, text in parts})
        return built.eval() if row.mode == "infer" else built

    return build


def _value(stated: Any, module: ModuleType) -> Any:
    if isinstance(stated, Mapping):
        return {key: _value(item, module) for key, item in stated.items()}
    if isinstance(stated, list):
        return [_value(item, module) for item in stated]
    if isinstance(stated, str):
        if stated.startswith("="):
            return _evaluated(stated[1:], module)
        return inputs_from_specs((parse_input(stated),)).args[0]
    return stated


def _evaluated(text: str, module: ModuleType) -> Any:
    return eval(text, {"torch": torch, "Namespace": Namespace, **vars(module)}, _Names(module))


class _Names(dict[str, Any]):
    """The names of a module, those included that it makes when they are asked for."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self._module = module

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(self._module, name)
        except AttributeError:
            raise KeyError(name) from None


def _import(container: str) -> ModuleType:
    """A file or a module, found as tclint finds it."""
    if not container.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(container)
    path = Path(container).resolve()
    package = package_of(str(path))
    sys.path.insert(0, package[0] if package is not None else str(path.parent))
    sys.path.extend(import_roots(str(path)))
    if package is not None:
        return importlib.import_module(package[1])
    spec = importlib.util.spec_from_file_location(f"row_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module
