"""Resizing a traced graph gives what building and tracing the resized model gives."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from dims_models import CASES, Case

from tclint.graph.dims.coupled import CoupledDims, DimGroup, DimsUnresolved
from tclint.graph.ops import Graph, TensorSpec
from tclint.tracing import trace_callable

FIXTURES = Path(__file__).parents[2] / "fixtures"

# Model, argument of build_model, the size to build it with.
REBUILDS = [
    ("bert_large", "hidden", 2048),
    ("bert_large", "vocab_size", 30528),
    ("big_lstm", "projection", 1032),
    ("densenet121", "growth", 40),
    ("gnmt", "hidden", 1032),
    ("gpt2", "vocab_size", 50304),
    ("gpt2", "n_embd", 1536),
    ("jasper", "tail_width", 904),
    ("mobilenet_v2", "stem_width", 40),
    ("ncf", "factors", 72),
    ("resnet50", "width", 72),
    ("resnext101_32x4d", "width_per_group", 8),
    ("ssd300", "num_classes", 88),
    ("tacotron2", "width", 520),
    ("transformer", "d_model", 2048),
    ("unet", "width", 72),
    ("vgg19", "hidden", 4104),
    ("waveglow", "width", 264),
]


def changed_groups(dims: CoupledDims, rebuilt: Graph) -> dict[DimGroup, int]:
    """What to resize so that the parameters have the rebuilt model's sizes."""
    changes: dict[DimGroup, int] = {}
    for old, new in zip(dims.graph.parameters, rebuilt.parameters, strict=True):
        for axis, (size, new_size) in enumerate(zip(old.shape, new.shape, strict=True)):
            if size != new_size:
                group = dims.group_of_parameter(old.name, axis)
                assert group is not None
                assert group.size == size
                assert changes.setdefault(group, new_size) == new_size
    return changes


def layout(spec: TensorSpec) -> tuple[Any, ...]:
    """Shape and strides, without the meaningless strides of dims of size 1."""
    strides = spec.strides or ()
    return spec.shape, tuple(stride for size, stride in zip(spec.shape, strides, strict=False) if size > 1)


def assert_equal_shapes(resized: Graph, rebuilt: Graph) -> None:
    assert [op.name for op in resized.ops] == [op.name for op in rebuilt.ops]
    for ours, theirs in zip(resized.ops, rebuilt.ops, strict=True):
        place = f"{ours.index} {ours.name}"
        assert [layout(spec) for spec in ours.inputs] == [layout(spec) for spec in theirs.inputs], place
        assert [layout(spec) for spec in ours.outputs] == [layout(spec) for spec in theirs.outputs], place
        assert ours.attributes.get("groups") == theirs.attributes.get("groups"), place
        assert ours.attributes.get("normalized_shape") == theirs.attributes.get("normalized_shape"), place
    assert [p.shape for p in resized.parameters] == [p.shape for p in rebuilt.parameters]
    assert [spec.shape for spec in resized.outputs] == [spec.shape for spec in rebuilt.outputs]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_small_models(case: Case) -> None:
    graph = trace_callable(lambda: case.build(case.size), case.example())
    rebuilt = trace_callable(lambda: case.build(case.new_size), case.example())
    dims = CoupledDims(graph)
    changes = changed_groups(dims, rebuilt)
    # More would mean that dims which meet in the model were not coupled.
    assert len({root for group in changes for root in group.roots or (group,)}) == case.dims
    assert_equal_shapes(dims.resize(changes), rebuilt)


# Where one group alone cannot change, and the op that says so: repeated key and value heads are two
# products that must stay equal, and neither determines the other.
REFUSED_BY = {"llama": {"matmul"}}


@pytest.mark.parametrize("name", CASES)
def test_a_resized_graph_is_consistent(name: str) -> None:
    """Every group alone, too: the rules that made the new shapes must accept them as traced ones."""
    case = CASES[name]
    dims = CoupledDims(trace_callable(lambda: case.build(case.size), case.example()))
    unresolved = [group.id for group in dims.groups if group.unresolved]
    refused_by = set()
    for group in dims.groups:
        if group.unresolved is None and group.size > 1:
            size = dims.next_multiple(group, 8 * group.size)
            assert size is not None
            try:
                resized = dims.resize({group: size})
            except DimsUnresolved as error:
                refused_by.add(error.op.name if error.op else error.reason)
                continue
            again = CoupledDims(resized)
            assert [other.id for other in again.groups if other.unresolved] == unresolved
    assert refused_by == REFUSED_BY.get(name, set())


def load_fixture(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"dims_fixture_{name}", FIXTURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "argument", "size"), REBUILDS)
def test_real_models(name: str, argument: str, size: int) -> None:
    module = load_fixture(name)
    inputs = module.example_inputs()
    graph = trace_callable(module.build_model, inputs)
    rebuilt = trace_callable(lambda: module.build_model(**{argument: size}), inputs)
    dims = CoupledDims(graph)
    changes = changed_groups(dims, rebuilt)
    assert changes
    assert_equal_shapes(dims.resize(changes), rebuilt)
