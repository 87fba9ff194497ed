"""Does padding what tclint recommends give a model that runs?

For every model in a folder, and for variants of it whose sizes are made odd, the recommended paddings of all
misaligned layers are taken; each is then built for real, by finding the argument of build_model that gives
the parameters the predicted shapes, else by giving every layer its predicted sizes, and run on meta tensors.
Every op's shapes must be the predicted ones.

    python benchmarks/padding.py fixtures
    python benchmarks/padding.py styles      # widths written in many ways: padding_styles.py
    python benchmarks/padding.py zoo         # every dim of the hand-written models of zoo_custom

Models of the zoo have no arguments: there each dim that tclint holds for free to change is given another
size, one after the other, and built by its layers. Code that keeps a size elsewhere, or states it, cannot be
built so; that is counted apart.

Exit code 1 if a padded model could not be run or has other shapes than predicted.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from tclint.analysis.graph_context import GraphContext
from tclint.analysis.layers import indices_of
from tclint.analysis.widths.misalignment import misaligned_layers
from tclint.analysis.widths.padding import Padding, best_padding
from tclint.config.settings import Settings
from tclint.core.errors import TargetError
from tclint.graph.dims.coupled import DimGroup, DimsUnresolved
from tclint.graph.ops import Graph

SKIPPED = ("gpt3_175b",)
"""GPT-2 at other sizes."""
ODD_STEPS = (1, 2, 4, 12, 20, 30)
"""Added to an argument's default to make it odd; heads take some of them only."""
OTHER_OPS = "other operators run"
STATING = ("view", "reshape", "unflatten", "one_hot")
"""Operators whose result has the sizes that the code names: other layers do not change them."""
MOST_PAIRED = 24
LARGEST_STEP = 512
"""How far above the present value an argument is searched."""


class Model(Protocol):
    """A module, or anything with its two functions."""

    build_model: Callable[..., Any]
    example_inputs: Callable[[], Any]


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
    not_buildable: str = ""
    """Why the model's own code does not run with other layers."""
    refused: str = ""
    """Why tclint does not give the dim that size: the op that stops it."""

    @property
    def passed(self) -> bool:
        return bool(self.built_with) and not (self.difference or self.not_buildable or self.refused)

    @property
    def failed(self) -> bool:
        return bool(self.difference) or not self.built_with

    @property
    def verdict(self) -> str:
        if self.refused:
            return f"refused: {self.refused}"
        return f"not buildable: {self.not_buildable}" if self.not_buildable else self.difference or "ok"


def outcomes(module: Model, model: str) -> Iterator[Outcome]:
    """Every recommended padding of one model and of its odd variants."""
    yield from _of_variant(module, model, {}, _trace(module, {}))
    for name, default in _sizes(module).items():
        for step in ODD_STEPS:
            if (default + step) % 8 == 0:
                continue
            try:
                graph = _trace(module, {name: default + step})
            except TargetError:
                continue  # heads that do not divide the width, a length that the positions do not cover
            yield from _of_variant(module, model, {name: default + step}, graph)
            break


def group_outcomes(module: Model, name: str) -> Iterator[Outcome]:
    """Every dim of a model that is free to change, given the next multiple of 8, and built by its layers."""
    graph = _trace(module, {})
    context = GraphContext(graph, Settings(gpus=("a100",)), name)
    for group in context.dims.groups:
        if group.fixed or group.unresolved or group.is_batch or not group.parameters or group.size < 2:
            continue
        size = 8 * (group.size // 8 + 1)
        outcome = Outcome(name, group.id, f"{group.size} -> {size}", built_with="its layers")
        try:
            predicted = context.dims.resize({group: size})
        except DimsUnresolved as error:
            yield replace(outcome, refused=str(error))
            continue
        try:
            rebuilt = _trace_layers(module, {}, predicted)
        except TargetError as error:
            yield replace(outcome, not_buildable=str(error).split(";")[0])
            continue
        difference = _difference(predicted, rebuilt)
        if difference == OTHER_OPS or any(f"({name})" in difference for name in STATING):
            yield replace(outcome, not_buildable=f"it branches on the size, or states it: {difference}")
        else:
            yield replace(outcome, difference=difference)


def _of_variant(module: Model, model: str, arguments: dict[str, int], graph: Graph) -> Iterator[Outcome]:
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
    for head in context.vocabulary_heads:
        if head.size % 8 and head.group is not None:
            groups = {head.group.id: head.group}
            for op in head.embeddings:
                group = context.dims.group_of_input(op.index, op.input_names.index("weight"), 0)
                if group is not None:
                    groups[group.id] = group
            yield tuple(groups.values()), (head.op.index,)


def _built(
    module: Model, outcome: Outcome, arguments: dict[str, int], graph: Graph, predicted: Graph
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
    # Two sizes that are padded together may be two arguments, each of which the code keeps.
    pairs = ({a: x, b: y} for (a, x), (b, y) in combinations(candidates[:MOST_PAIRED], 2) if a != b)
    for extra in ({}, *({name: value} for name, value in candidates), *pairs):
        try:
            difference = _difference(predicted, _trace_layers(module, arguments | extra, predicted))
        except TargetError as error:
            difference = str(error).split(";")[0]
        if not difference:
            return outcome
        first_difference = first_difference or difference
    return replace(outcome, difference=first_difference)


def _trace_layers(module: Model, arguments: dict[str, int], predicted: Graph) -> Graph:
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
        return OTHER_OPS
    for ours, theirs in zip(predicted.ops, rebuilt.ops, strict=True):
        if [spec.shape for spec in ours.inputs] != [spec.shape for spec in theirs.inputs]:
            return f"inputs of op {ours.index} ({ours.name})"
        if [spec.shape for spec in ours.outputs] != [spec.shape for spec in theirs.outputs]:
            return f"outputs of op {ours.index} ({ours.name})"
    return ""


def _sizes(module: Model) -> dict[str, int]:
    """Integer arguments of build_model with their defaults: sizes that a layer could have."""
    parameters = inspect.signature(module.build_model).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if type(parameter.default) is int and parameter.default >= 4
    }


def _trace(module: Model, arguments: dict[str, int]) -> Graph:
    import tclint

    return tclint.trace(lambda: module.build_model(**arguments), module.example_inputs())


def _parameter_shapes(module: Model, arguments: dict[str, int]) -> dict[str, tuple[int, ...]] | None:
    """Shapes of the parameters as a trace lists them; None where the model cannot be built so."""
    import torch

    try:
        with torch.device("meta"):
            built = module.build_model(**arguments)
    except Exception:
        return None
    named = (*built.named_parameters(), *built.named_buffers())
    return {name: tuple(tensor.shape) for name, tensor in named}


@dataclass(frozen=True)
class _ZooModel:
    build_model: Callable[..., Any]
    example_inputs: Callable[[], Any]


def _zoo() -> Iterator[tuple[str, Model]]:
    from zoo_custom.cases import cases

    for case in cases():
        build = case.build
        yield case.name, _ZooModel(lambda build=build: build()[0], lambda build=build: build()[1])


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


def models(source: str) -> Iterator[tuple[str, Model]]:
    """Name and model of each style, of each model of the zoo, or of each file of a folder."""
    if source == "styles":
        from padding_styles import STYLES

        yield from ((style.name, style) for style in STYLES)
    elif source == "zoo":
        yield from _zoo()
    else:
        for path in sorted(Path(source).glob("*.py")):
            if path.stem not in SKIPPED and "def build_model(" in path.read_text(encoding="utf-8"):
                yield path.stem, cast(Model, _load(path))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", help="folder of model files, each with build_model(...); 'styles' or 'zoo'")
    parser.add_argument("--only", help="one model by its name")
    options: Any = parser.parse_args(arguments)
    find = group_outcomes if options.models == "zoo" else outcomes
    found: list[Outcome] = []
    not_traced = 0
    for name, module in models(options.models):
        if options.only not in (None, name):
            continue
        try:
            for outcome in find(module, name):
                found.append(outcome)
                print(
                    f"{outcome.model:18} {outcome.arguments:22} {outcome.padding:60} "
                    f"{outcome.built_with:20} {outcome.verdict}",
                    flush=True,
                )
        except Exception as error:  # a model that wants a GPU, or more than its layers
            print(f"{name:18} not traced: {type(error).__name__}: {error}", flush=True)
            not_traced += 1
    passed = sum(outcome.passed for outcome in found)
    failed = sum(outcome.failed for outcome in found)
    words = f"{len(found)} paddings tried, {passed} passed, {failed} failed"
    refused = sum(bool(outcome.refused) for outcome in found)
    not_buildable = sum(bool(outcome.not_buildable) for outcome in found)
    if refused or not_buildable:
        words += f", {refused} refused with a reason, {not_buildable} whose code holds a size elsewhere"
    print(words + (f"; {not_traced} models not traced" if not_traced else ""))
    return int(failed > 0 or not passed or (not_traced > 0 and options.models != "zoo"))


if __name__ == "__main__":
    sys.exit(main())
