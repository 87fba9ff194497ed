"""Does padding what tclint recommends give a model that runs?

For every model in a folder, and for variants of it whose sizes are made odd, the recommended paddings of all
misaligned layers are taken; each is then built for real, by finding the argument of build_model that gives
the parameters the predicted shapes, else by giving every layer its predicted sizes, and run on meta tensors.
Every op's shapes must be the predicted ones.

    python benchmarks/padding.py fixtures

Exit code 1 if a padded model could not be run or has other shapes than predicted.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tclint.advice.layers import indices_of
from tclint.advice.misalignment import misaligned_layers
from tclint.advice.padding import Padding, best_padding
from tclint.advice.vocabulary import vocabulary_heads
from tclint.config import Settings
from tclint.context import GraphContext
from tclint.errors import TargetError
from tclint.graph import Graph
from tclint.graph.dims import DimGroup

SKIPPED = ("gpt3_175b",)
"""GPT-2 at other sizes."""
ODD_STEPS = (1, 2, 4, 12, 20, 30)
"""Added to an argument's default to make it odd; heads take some of them only."""
LARGEST_STEP = 512
"""How far above the present value an argument is searched."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One recommended padding, and what came of building it."""

    model: str
    arguments: str
    """What the variant was built with, where it differs from the defaults."""
    padding: str
    built_with: str = ""
    """The argument that gives the padded model; 'its layers' where no single one does."""
    difference: str = ""
    """How the model that was built differs from the predicted one."""

    @property
    def passed(self) -> bool:
        return bool(self.built_with) and not self.difference


def outcomes(path: Path) -> Iterator[Outcome]:
    """Every recommended padding of one model file and of its odd variants."""
    module = _load(path)
    yield from _of_variant(module, path.stem, {}, _trace(module, {}))
    for name, default in _sizes(module).items():
        for step in ODD_STEPS:
            if (default + step) % 8 == 0:
                continue
            try:
                graph = _trace(module, {name: default + step})
            except TargetError:
                continue  # heads that do not divide the width, a length that the positions do not cover
            yield from _of_variant(module, path.stem, {name: default + step}, graph)
            break


def _of_variant(module: ModuleType, model: str, arguments: dict[str, int], graph: Graph) -> Iterator[Outcome]:
    context = GraphContext(graph, Settings(gpus=("a100",)), model)
    shown = ", ".join(f"{name}={value}" for name, value in arguments.items())
    for groups, concerned in _recommended(context):
        padding = best_padding(context, groups, concerned)
        if not isinstance(padding, Padding):
            continue
        predicted = context.dims.resize(dict(padding.change.sizes))
        yield _built(module, Outcome(model, shown, padding.phrase(8)), arguments, graph, predicted)


def _recommended(context: GraphContext) -> Iterator[tuple[Sequence[DimGroup], tuple[int, ...]]]:
    """What the rules would pad: misaligned layers, and vocabularies."""
    for layers in misaligned_layers(context):
        yield layers.groups, indices_of(layers.ops)
    for head in vocabulary_heads(context):
        if head.size % 8 and head.group is not None:
            groups = {head.group.id: head.group}
            for op in head.embeddings:
                group = context.dims.group_of_input(op.index, op.input_names.index("weight"), 0)
                if group is not None:
                    groups[group.id] = group
            yield tuple(groups.values()), (head.op.index,)


def _built(
    module: ModuleType, outcome: Outcome, arguments: dict[str, int], graph: Graph, predicted: Graph
) -> Outcome:
    """The outcome of building the padded model by one argument of build_model."""
    shapes = {parameter.name: parameter.shape for parameter in predicted.parameters}
    candidates = [
        (name, value)
        for name, default in _sizes(module).items()
        for value in range(arguments.get(name, default) + 1, arguments.get(name, default) + LARGEST_STEP)
        if _may_give(shapes, value, arguments.get(name, default), graph)
    ]
    for name, value in candidates:
        if _parameter_shapes(module, {**arguments, name: value}) == shapes:
            rebuilt = _trace(module, {**arguments, name: value})
            return replace(outcome, built_with=f"{name}={value}", difference=_difference(predicted, rebuilt))
    # Sizes that the code derives from one another (4 * width), or that two arguments give, have to be
    # changed where the layers are built.
    outcome = replace(outcome, built_with="its layers")
    first_difference = ""
    for extra in ({}, *({name: value} for name, value in candidates)):
        try:
            difference = _difference(predicted, _trace_layers(module, arguments | extra, predicted))
        except TargetError as error:
            difference = str(error).split(";")[0]
        if not difference:
            return outcome
        first_difference = first_difference or difference
    return replace(outcome, difference=first_difference)


def _trace_layers(module: ModuleType, arguments: dict[str, int], predicted: Graph) -> Graph:
    """The model built as it is, every layer then given the sizes that the predicted graph has for it."""
    import torch

    import tclint

    def build() -> Any:
        built = module.build_model(**arguments)
        tensors = {**dict(built.named_parameters()), **dict(built.named_buffers())}
        for parameter in predicted.parameters:
            old = tensors.get(parameter.name)
            if old is None or tuple(old.shape) == parameter.shape:
                continue
            new = old.detach().new_empty(parameter.shape)
            for name in (parameter.name, *parameter.aliases):
                owner, _, attribute = name.rpartition(".")
                value = new if parameter.is_buffer else torch.nn.Parameter(new)
                setattr(built.get_submodule(owner), attribute, value)
            for name in parameter.aliases:
                owner, _, attribute = name.rpartition(".")
                setattr(built.get_submodule(owner), attribute, built.get_parameter(parameter.name))
        groups = {
            op.module_path: op.attributes["groups"] for op in predicted.ops if "groups" in op.attributes
        }
        for name, layer in built.named_modules():
            _restate_sizes(layer, groups.get(name))
        return built

    return tclint.trace(build, module.example_inputs())


def _restate_sizes(layer: Any, groups: int | None) -> None:
    """Layers check some of the sizes that they were built with."""
    from torch import nn

    if isinstance(layer, nn.LayerNorm):
        layer.normalized_shape = tuple(layer.weight.shape)
    elif isinstance(layer, nn.LSTM | nn.GRU | nn.RNN):
        layer.input_size, layer.hidden_size = layer.weight_ih_l0.shape[1], layer.weight_hh_l0.shape[1]
    elif isinstance(layer, nn.LSTMCell | nn.GRUCell | nn.RNNCell):
        layer.input_size, layer.hidden_size = layer.weight_ih.shape[1], layer.weight_hh.shape[1]
    elif groups is not None and hasattr(layer, "groups"):
        layer.groups = groups


def _may_give(shapes: Mapping[str, tuple[int, ...]], value: int, present: int, graph: Graph) -> bool:
    """Cheap test before building: some dim grows from a multiple of the one value to that of the other."""
    for parameter in graph.parameters:
        for old, new in zip(parameter.shape, shapes[parameter.name], strict=True):
            if old != new and present and old * value == new * present:
                return True
            if old != new and new - old == value - present:
                return True
    return False


def _difference(predicted: Graph, rebuilt: Graph) -> str:
    if [op.name for op in predicted.ops] != [op.name for op in rebuilt.ops]:
        return "other operators run"
    for ours, theirs in zip(predicted.ops, rebuilt.ops, strict=True):
        if [spec.shape for spec in ours.inputs] != [spec.shape for spec in theirs.inputs]:
            return f"inputs of op {ours.index} ({ours.name})"
        if [spec.shape for spec in ours.outputs] != [spec.shape for spec in theirs.outputs]:
            return f"outputs of op {ours.index} ({ours.name})"
    return ""


def _sizes(module: ModuleType) -> dict[str, int]:
    """Integer arguments of build_model with their defaults: sizes that a layer could have."""
    parameters = inspect.signature(module.build_model).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if type(parameter.default) is int and parameter.default >= 4
    }


def _trace(module: ModuleType, arguments: dict[str, int]) -> Graph:
    import tclint

    return tclint.trace(lambda: module.build_model(**arguments), module.example_inputs())


def _parameter_shapes(module: ModuleType, arguments: dict[str, int]) -> dict[str, tuple[int, ...]] | None:
    """Shapes of the parameters as a trace lists them; None where the model cannot be built so."""
    import torch

    try:
        with torch.device("meta"):
            built = module.build_model(**arguments)
    except Exception:
        return None
    named = (*built.named_parameters(), *built.named_buffers())
    return {name: tuple(tensor.shape) for name, tensor in named}


def _load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(f"padding_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def model_files(folder: Path) -> list[Path]:
    """The folder's files that define build_model."""
    return [
        path
        for path in sorted(folder.glob("*.py"))
        if path.stem not in SKIPPED and "def build_model(" in path.read_text(encoding="utf-8")
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of model files, each with build_model(...)")
    parser.add_argument("--only", help="one model by its file's name")
    options: Any = parser.parse_args(arguments)
    found: list[Outcome] = []
    for path in model_files(options.folder):
        if options.only in (None, path.stem):
            for outcome in outcomes(path):
                found.append(outcome)
                verdict = "ok" if outcome.passed else outcome.difference
                print(
                    f"{outcome.model:18} {outcome.arguments:22} {outcome.padding:60} "
                    f"{outcome.built_with:20} {verdict}",
                    flush=True,
                )
    passed = sum(outcome.passed for outcome in found)
    print(f"{len(found)} paddings recommended and built, {passed} passed")
    return int(passed < len(found) or not found)


if __name__ == "__main__":
    sys.exit(main())
