"""Which line of the user's code a layer and an operator belong to."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import tclint
from tclint.config.settings import Settings
from tclint.graph.ops import Graph, Op, Site
from tclint.tracing import trace_targets

LIBRARY = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)            # library: fc

    def forward(self, x):
        return torch.relu(self.fc(x))                # library: call

def make_head(width):
    return nn.Linear(width, 2)                       # library: head
"""

MODEL = """
import functools
import torch
from torch import nn
from sitelib import Block, make_head

class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

class Layer(Base):
    def __init__(self, width):
        super().__init__(width)
        self.conv = nn.Conv1d(width, width, 1)       # conv

    def forward(self, x):
        return self.conv(x)                          # conv call

def traced(init):
    @functools.wraps(init)
    def wrapper(self, *args, **kwargs):
        return init(self, *args, **kwargs)
    return wrapper

class Wrapped(nn.Linear):
    @traced
    def __init__(self, *args):
        super().__init__(*args)

def linear(width):
    return nn.Linear(width, width)                   # factory

class Net(nn.Module):                                # class
    def __init__(self):
        super().__init__()
        self.layer = Layer(4)                        # layer
        self.loop = nn.ModuleList()
        for _ in range(2):
            self.loop.append(nn.Linear(4, 4))        # loop
        self.comprehension = nn.Sequential(
            *[nn.Linear(4, 4) for _ in range(2)]     # comprehension
        )
        self.factory = linear(4)
        self.wrapped = Wrapped(4, 4)                 # wrapped
        self.block = Block(4)                        # block
        self.head = make_head(4)                     # head

    def forward(self, x):
        x = self.layer(x)
        for module in self.loop:
            x = module(x)                            # loop call
        x = self.comprehension(x)                    # comprehension call
        x = torch.tanh(self.factory(x))              # tanh
        x = self.block(self.wrapped(x))              # block call
        return self.head(x)

def build():                                         # root
    return Net()
"""


def line_of(text: str, mark: str) -> int:
    (line,) = [
        number for number, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith("# " + mark)
    ]
    return line


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("sites")
    library = folder / "lib" / "site-packages"
    library.mkdir(parents=True)
    (library / "sitelib.py").write_text(LIBRARY)
    path = folder / "site_model.py"
    path.write_text(textwrap.dedent(MODEL))
    sys.path.insert(0, str(library))
    try:
        spec = importlib.util.spec_from_file_location("site_model", path)
        assert spec is not None
        assert spec.loader is not None
        made = sys.modules["site_model"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        yield made
    finally:
        sys.path.remove(str(library))
        sys.modules.pop("sitelib", None)
        sys.modules.pop("site_model", None)


@pytest.fixture(scope="module")
def graph(module: ModuleType) -> Graph:
    return tclint.trace(module.build, torch.empty(2, 4, 4))


def op_in(graph: Graph, path: str, name: str = "linear") -> Op:
    (op,) = [op for op in graph.ops if op.module_path == path and op.name == name]
    return op


def at(site: Site | None) -> tuple[str, int] | None:
    return None if site is None else (Path(site.path).name, site.line)


@pytest.mark.parametrize(
    ("path", "mark"),
    [
        ("loop.1", "loop"),
        ("comprehension.0", "comprehension"),
        ("factory", "factory"),
        ("wrapped", "wrapped"),
    ],
)
def test_layers_belong_to_the_line_that_constructs_them(graph: Graph, path: str, mark: str) -> None:
    op = op_in(graph, path)
    assert at(op.construct_site) == ("site_model.py", line_of(MODEL, mark))
    assert op.construct_library_site is None


def test_a_layer_of_a_layer(graph: Graph) -> None:
    op = op_in(graph, "layer.conv", "conv1d")
    assert at(op.construct_site) == ("site_model.py", line_of(MODEL, "conv"))
    assert at(op.call_site) == ("site_model.py", line_of(MODEL, "conv call"))


def test_library_layers_belong_to_the_line_that_called_the_library(graph: Graph) -> None:
    block, head = op_in(graph, "block.fc"), op_in(graph, "head")
    assert at(block.construct_site) == ("site_model.py", line_of(MODEL, "block"))
    assert at(block.construct_library_site) == ("sitelib.py", line_of(LIBRARY, "library: fc"))
    assert at(block.call_site) == ("site_model.py", line_of(MODEL, "block call"))
    assert at(block.call_library_site) == ("sitelib.py", line_of(LIBRARY, "library: call"))
    assert at(head.construct_site) == ("site_model.py", line_of(MODEL, "head"))
    assert at(head.construct_library_site) == ("sitelib.py", line_of(LIBRARY, "library: head"))


def test_functional_operators_have_a_call_site(graph: Graph) -> None:
    (tanh,) = [op for op in graph.ops if op.name == "tanh"]
    assert at(tanh.call_site) == ("site_model.py", line_of(MODEL, "tanh"))
    assert tanh.module_type == "Net"


def test_called_through_torch(graph: Graph) -> None:
    assert at(op_in(graph, "comprehension.1").call_site) == (
        "site_model.py",
        line_of(MODEL, "comprehension call"),
    )


def test_the_root_is_where_the_callable_is_defined(graph: Graph, module: ModuleType) -> None:
    assert at(graph.root_site) == ("site_model.py", line_of(MODEL, "root"))
    by_class = tclint.trace(module.Net, torch.empty(2, 4, 4))
    assert at(by_class.root_site) == ("site_model.py", line_of(MODEL, "class"))


def test_the_caller_of_the_tracer_is_no_site(graph: Graph, module: ModuleType) -> None:
    by_class = tclint.trace(module.Net, torch.empty(2, 4, 4))
    for traced in (graph, by_class):
        for op in traced.ops:
            for site in (op.construct_site, op.call_site):
                assert site is None or Path(site.path).name in ("site_model.py", "sitelib.py")


def test_a_class_that_a_decorator_derives_is_shown_where_the_user_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "persistence.py").write_text(
        "def persistent(written):\n"
        "    class Decorator(written):\n"
        "        def __init__(self, *args, **kwargs):\n"
        "            super().__init__(*args, **kwargs)\n"
        "            self.arguments = args\n"
        "    Decorator.__name__ = written.__name__\n"
        "    return Decorator\n"
    )
    model = tmp_path / "networks.py"
    model.write_text(
        "from torch import nn\n"
        "from persistence import persistent\n\n"
        "@persistent\n"
        "class Layer(nn.Module):\n"
        "    def __init__(self, width):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(width, 16)\n"
        "    def forward(self, x):\n"
        "        return self.linear(x)\n\n"
        "@persistent\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, width=16):\n"
        "        super().__init__()\n"
        "        self.layer = Layer(width)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x)\n"
    )
    settings = Settings(inputs=("4,16",))
    [result] = trace_targets([f"{model}:Net"], settings)
    assert result.graph is not None, result.error
    root, [linear] = result.graph.root_site, result.graph.ops
    assert root is not None
    assert (Path(root.path).name, root.line, root.function) == ("networks.py", 13, "Net")
    assert linear.construct_site is not None
    assert linear.call_site is not None
    assert {Path(site.path).name for site in (linear.construct_site, linear.call_site)} == {"networks.py"}
