"""The line that a user would edit, for the ways in which models are put together."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import tclint
from tclint.graph.ops import Graph

HELPERS = """
from torch import nn

REGISTRY = {}

def register(cls):
    REGISTRY[cls.__name__] = cls
    return cls

def conv_block(inner, outer):
    return nn.Sequential(
        nn.Conv1d(inner, outer, 1),                      # helper conv
        nn.BatchNorm1d(outer),
    )
"""

MODEL = """
import contextlib
import copy
import dataclasses
import functools
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn
from styles_helpers import REGISTRY, conv_block, register

CONFIG = [{"type": "Linear", "in_features": 4, "out_features": 4}, {"type": "ReLU"}]

def from_config(specification):
    arguments = dict(specification)
    return getattr(nn, arguments.pop("type"))(**arguments)   # config

def linear(*sizes, **options):
    layer = nn.Linear(*sizes, **options)                 # handed on
    return layer

@register
class Registered(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)                # registered fc

    def forward(self, x):
        return self.fc(x)

class Counted(type(nn.Module)):
    def __call__(cls, *args, **kwargs):
        return super().__call__(*args, **kwargs)

class Meta(nn.Linear, metaclass=Counted):
    pass

@dataclasses.dataclass(eq=False)
class Record(nn.Module):
    width: int

    def __post_init__(self):
        super().__init__()
        self.fc = nn.Linear(self.width, self.width)      # dataclass fc

    def forward(self, x):
        return self.fc(x)

class Late(nn.Module):
    def __init__(self, **options):
        super(Late, self).__init__()
        self.fc = nn.Linear(**options)                   # keywords

    @classmethod
    def of_width(cls, width):
        return cls(in_features=width, out_features=width)

    def forward(self, x):
        return self.fc(x)

class MixinFirst:
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

class Mixed(MixinFirst, nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)

class Property(nn.Module):
    @functools.cached_property
    def fc(self):
        return nn.Linear(4, 4)                           # cached property

    def forward(self, x):
        return self.fc(x)

class Raw(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4))

    def forward(self, x):
        return F.linear(x, self.weight)                  # functional

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for width in (4, 4):
            layers += [nn.Linear(width, 4), nn.ReLU()]   # list
        self.unpacked = nn.Sequential(*layers)
        self.ordered = nn.Sequential(OrderedDict(
            first=nn.Linear(4, 4),                       # ordered
        ))
        self.config = nn.Sequential(*map(from_config, CONFIG))
        prototype = nn.Linear(4, 4)                      # prototype
        self.copies = nn.ModuleList(copy.deepcopy(prototype) for _ in range(2))
        make = functools.partial(nn.Linear, 4)
        self.partial = make(4)                           # partial
        self.by_lambda = (lambda: nn.Linear(4, 4))()     # lambda
        self.registered = REGISTRY["Registered"](4)
        self.meta = Meta(4, 4)                           # metaclass
        self.record = Record(4)
        self.late = Late.of_width(4)
        self.mixed = Mixed(4)                            # mixin
        self.lazy = nn.LazyLinear(4)                     # lazy
        self.add_module("added", nn.Linear(4, 4))        # added
        setattr(self, "branch_" + "a", nn.Linear(4, 4))  # setattr
        self.table = nn.ModuleDict({
            "key": nn.Linear(4, 4),                      # table
        })
        with contextlib.nullcontext():
            self.in_context = nn.Linear(
                4,
                4,
            )
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 4, batch_first=True),  # encoder layer
            num_layers=2,
        )
        self.normed = nn.utils.parametrizations.weight_norm(
            nn.Linear(4, 4)                              # parametrized
        )
        self.scripted = torch.jit.script(nn.Linear(4, 4))            # scripted
        self.compiled = torch.compile(nn.Linear(4, 4))   # compiled
        self.property = Property()
        self.raw = Raw()                                 # raw
        self.block = conv_block(4, 4)
        self.helped = linear(4, 4)                       # helped
        self.twice = self.make(4, 4)                     # twice

    def make(self, *sizes):
        return linear(*sizes)

    def forward(self, x):
        x = self.ordered(self.unpacked(x))
        x = self.config(x)
        for layer in (*self.copies, self.partial, self.by_lambda, self.registered, self.meta, self.record,
                      self.late, self.mixed, self.lazy, self.added, self.branch_a, self.table["key"],
                      self.in_context, self.encoder, self.normed, self.scripted, self.compiled, self.property,
                      self.raw, self.block, self.helped, self.twice):
            x = layer(x)
        return x
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("styles")
    (folder / "styles_helpers.py").write_text(HELPERS)
    path = folder / "styles_model.py"
    path.write_text(MODEL)
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("styles_model", path)
        assert spec is not None
        assert spec.loader is not None
        made = sys.modules["styles_model"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        yield made
    finally:
        sys.path.remove(str(folder))
        for name in ("styles_helpers", "styles_model"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def graph(module: ModuleType) -> Graph:
    return tclint.trace(module.Net, torch.empty(2, 4, 4))


def line_of(text: str, mark: str) -> int:
    (line,) = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# " + mark)]
    return line


@pytest.mark.parametrize(
    ("path", "mark"),
    [
        ("unpacked.0", "list"),
        ("unpacked.2", "list"),
        ("ordered.first", "ordered"),
        ("config.0", "config"),
        ("copies.0", "prototype"),
        ("copies.1", "prototype"),
        ("partial", "partial"),
        ("by_lambda", "lambda"),
        ("registered.fc", "registered fc"),
        ("meta", "metaclass"),
        ("record.fc", "dataclass fc"),
        ("late.fc", "keywords"),
        ("mixed", "mixin"),
        ("lazy", "lazy"),
        ("added", "added"),
        ("branch_a", "setattr"),
        ("table.key", "table"),
        ("encoder.layers.0.linear1", "encoder layer"),
        ("encoder.layers.1.linear2", "encoder layer"),
        ("normed", "parametrized"),
        ("scripted", "scripted"),
        ("compiled", "compiled"),
        ("property.<Linear>", "cached property"),
        ("raw", "raw"),
        ("helped", "helped"),
        ("twice", "twice"),
    ],
)
def test_the_line_that_a_user_would_edit(graph: Graph, path: str, mark: str) -> None:
    (op,) = [op for op in graph.ops if op.module_path == path and op.name == "linear"]
    assert op.construct_site is not None
    assert (Path(op.construct_site.path).name, op.construct_site.line) == (
        "styles_model.py",
        line_of(MODEL, mark),
    )


def test_a_helper_that_hands_on_its_arguments_is_named_beside_its_caller(graph: Graph) -> None:
    for path in ("helped", "twice"):
        (op,) = [op for op in graph.ops if op.module_path == path]
        assert op.construct_library_site is not None
        assert op.construct_library_site.line == line_of(MODEL, "handed on")


def test_a_helper_in_another_file_of_the_user(graph: Graph) -> None:
    (op,) = [op for op in graph.ops if op.module_path == "block.0"]
    assert op.construct_site is not None
    assert (Path(op.construct_site.path).name, op.construct_site.line) == (
        "styles_helpers.py",
        line_of(HELPERS, "helper conv"),
    )


def test_a_call_over_several_lines_lies_within_it(graph: Graph) -> None:
    (op,) = [op for op in graph.ops if op.module_path == "in_context"]
    first = next(n for n, line in enumerate(MODEL.splitlines(), 1) if "self.in_context = " in line)
    assert op.construct_site is not None
    assert first <= op.construct_site.line <= first + 3


def test_every_product_has_a_construction_and_a_call_line(graph: Graph) -> None:
    products = [op for op in graph.ops if op.kind in ("linear", "matmul", "conv", "attention")]
    assert products
    for op in products:
        assert op.construct_site is not None, op.module_path
        assert op.call_site is not None, op.module_path
        assert Path(op.call_site.path).name == "styles_model.py"


def test_the_functional_call_is_the_call_site(graph: Graph) -> None:
    (op,) = [op for op in graph.ops if op.module_path == "raw" and op.name == "linear"]
    assert op.call_site is not None
    assert op.call_site.line == line_of(MODEL, "functional")
