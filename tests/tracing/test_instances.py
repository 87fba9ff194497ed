"""Models given as objects: traced where they are, and afterwards bit for bit as they were."""

from __future__ import annotations

import functools
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import tclint
from tclint.config.settings import Settings
from tclint.core.errors import TargetError, UsageError


@pytest.fixture(params=["forked", "here"], autouse=True)
def way(request: pytest.FixtureRequest) -> None:
    """Both ways of tracing an object leave it alone."""
    if request.param == "here":
        request.getfixturevalue("in_this_process")


_PLAIN = (int, float, str, bool, bytes, type(None), type)


def picture(*roots: Any) -> dict[str, Any]:
    """Everything that can be told of some values: identities, contents, bits, and random states."""
    seen: dict[str, Any] = {
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "threads": torch.get_num_threads(),
        "default": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "class": (nn.Module.__call__, nn.Module.__init__),
    }
    visited: set[int] = set()

    def look(value: Any, place: str) -> None:
        if isinstance(value, _PLAIN):
            seen[place] = value
            return
        seen[f"{place} is"] = id(value), type(value)
        if id(value) in visited:
            return
        visited.add(id(value))
        if isinstance(value, torch.Tensor):
            seen[f"{place} flags"] = value.requires_grad, value.device, value.dtype, value.layout
            seen[f"{place} attributes"] = {key: id(item) for key, item in vars(value).items()}
            if isinstance(value, nn.parameter.UninitializedTensorMixin):
                return
            seen[f"{place} shape"] = value.shape, value.stride(), value.is_leaf
            if not value.is_meta:
                seen[f"{place} bits"] = bytes(value.detach().clone().flatten().view(torch.uint8).tolist())
            if value.is_leaf:
                look(value.grad, f"{place}.grad")
        elif isinstance(value, random.Random):
            seen[f"{place} state"] = value.getstate()
        elif isinstance(value, Config):
            seen[f"{place} slots"] = {name: id(getattr(value, name, None)) for name in Config.__slots__}
        elif isinstance(value, torch.Generator):
            seen[f"{place} state"] = value.get_state().tolist()
        elif isinstance(value, np.ndarray):
            seen[f"{place} bits"] = value.tobytes()
        elif isinstance(value, dict):
            seen[f"{place} keys"] = list(value)
            for key, item in value.items():
                look(item, f"{place}[{key!r}]")
        elif isinstance(value, (list, tuple, deque)):
            seen[f"{place} length"] = len(value)
            for index, item in enumerate(value):
                look(item, f"{place}[{index}]")
        elif isinstance(value, set):
            seen[f"{place} items"] = sorted(map(repr, value))
        elif isinstance(value, MethodType):
            look(value.__self__, f"{place} self")
        elif isinstance(value, functools.partial):
            look(value.args, f"{place}.args")
        elif callable(value) and getattr(value, "__closure__", None):
            for index, cell in enumerate(value.__closure__):
                look(cell.cell_contents, f"{place} closure {index}")
        if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor):
            look(vars(value), f"vars({place})")

    for index, root in enumerate(roots):
        look(root, f"root {index}")
    return seen


def assert_untouched(model: nn.Module, *inputs: Any, **kwargs: Any) -> tclint.Graph:  # type: ignore[name-defined]
    before = picture(model, inputs)
    graph = tclint.trace(model, inputs or None, kwargs or None)
    after = picture(model, inputs)
    assert {key: value for key, value in after.items() if before.get(key, "missing") != value} == {}
    assert before.keys() == after.keys()
    return graph


class Norms(nn.Module):
    """Running statistics, a counter, dropout in training mode, and one part that is in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.still = nn.BatchNorm1d(16).eval()
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("table", torch.randn(200, 100))
        self.first.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        self.table[0] = 3.0
        self.norm.momentum = 0.5
        return self.drop(self.still(self.norm(self.first(x))))


class LazilyMade(nn.Module):
    """What a forward keeps: attributes, submodules, buffers, hooks, entries of containers, its own mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16)])
        self.cache: dict[str, Any] = {"old": torch.ones(3)}
        self.order: OrderedDict[str, int] = OrderedDict(a=1, b=2)
        self.history: list[Any] = [1]
        self.recent: deque[Any] = deque([1, 2], maxlen=2)
        self.names = {"x"}
        self.state = SimpleNamespace(step=0, inner={"deep": [0]})
        self.plain = torch.zeros(4)
        self.array = np.zeros(4)
        self.config = Config()

    def forward(self, x: torch.Tensor) -> Any:
        if not hasattr(self, "positions"):
            self.positions = torch.arange(16)
            self.extra = nn.Linear(16, 16)
            self.register_buffer("seen", torch.zeros(1))
            self.register_parameter("late", nn.Parameter(torch.zeros(16)))
        self.register_forward_hook(lambda *_: None)
        self.layers.append(nn.Linear(16, 16))
        self.cache["new"] = x
        del self.cache["old"]
        self.order.move_to_end("a")
        self.history.append(x)
        self.recent.append(x)
        self.names.add("y")
        self.state.step += 1
        self.state.inner["deep"][0] = x
        self.config.width = 3
        self.config.hidden = x
        self.plain += 1
        self.plain.my_mark = True  # type: ignore[attr-defined]
        self.array[0] = 5
        self.layers[0].requires_grad_(False)
        self.eval()
        return self.extra(self.layers[0](x)) + self.late


class Config:
    __slots__ = ("hidden", "width")

    def __init__(self) -> None:
        self.width = 1


class Random(nn.Module):
    """Draws from every generator there is."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.generator = torch.Generator().manual_seed(3)
        self.source = random.Random(5)
        self.numbers = np.random.default_rng(7)

    def forward(self, x: torch.Tensor) -> Any:
        noise = torch.rand(4, generator=self.generator).sum() + torch.randn(3).sum() + torch.randperm(5).sum()
        torch.manual_seed(random.randrange(99) + self.source.randrange(99))
        return self.first(x) * float(np.random.rand() + self.numbers.random()) + noise


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight
        self.aliases = [self.embed.weight]

    def forward(self, tokens: torch.Tensor) -> Any:
        self.aliases[0].data.clamp_(-0.1, 0.1)
        self.head.weight.data.mul_(2)
        return self.head(self.embed(tokens))


class Exchanged(nn.Module):
    """Puts other weights in the place of its own, and takes steps by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.plain = torch.ones(16)
        self.known = [self.first.bias]
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        self.first(torch.ones(2, 16)).sum().backward()

    def forward(self, x: torch.Tensor) -> Any:
        self.optimizer.zero_grad()
        self.optimizer.step()
        self.first.weight = nn.Parameter(torch.ones(16, 16))
        self.plain.data = torch.zeros(3)
        self.known[0].requires_grad_(False)
        return self.first(x)


class Counter:
    calls = 0

    def see(self, module: nn.Module, given: Any, output: Any) -> None:
        self.calls += 1


def hooked() -> nn.Module:
    """Hooks that count in a closure and keep what they see."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    calls, kept = 0, []

    def count(module: nn.Module, given: Any, output: Any) -> None:
        nonlocal calls
        calls += 1
        kept.append(output)

    model.register_forward_hook(count)
    model.register_forward_hook(Counter().see)
    model[0].register_forward_pre_hook(lambda module, given: None)
    return model


def with_weight_norm() -> nn.Module:
    old = torch.nn.utils.weight_norm(nn.Linear(16, 16))
    new = parametrizations.weight_norm(nn.Linear(16, 16))
    spectral = parametrizations.spectral_norm(nn.Linear(16, 16))
    return nn.Sequential(old, new, spectral, parametrizations.orthogonal(nn.Linear(16, 16)))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU())


def with_gradients() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
    model(torch.randn(4, 16)).sum().backward()
    return model


def replaced_forward() -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16))
    model.forward = functools.partial(type(model).forward, model)  # type: ignore[method-assign]
    return model


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))


def made_for_inference() -> nn.Module:
    with torch.inference_mode():
        return Norms()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "norms": Norms,
    "lazily made": LazilyMade,
    "random": Random,
    "exchanged": Exchanged,
    "hooked": hooked,
    "weight norm": with_weight_norm,
    "lazy": lazy,
    "gradients": with_gradients,
    "forward replaced": replaced_forward,
    "half": lambda: nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).half(),
    "bfloat16 in eval": lambda: Norms().bfloat16().eval(),
    "inference tensors": made_for_inference,
    "meta": on_meta,
    "recurrent": lambda: nn.Sequential(nn.LSTM(16, 16)),
    "attention": lambda: nn.TransformerEncoderLayer(16, 2, batch_first=True).eval(),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_left_as_it_was(name: str) -> None:
    model = MODELS[name]()
    dtype = next(model.parameters()).dtype
    shape = (4, 3, 16) if name == "attention" else (4, 16)
    graph = assert_untouched(model, torch.zeros(shape, dtype=dtype))
    assert any(op.kind in ("linear", "rnn", "attention") for op in graph.ops)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "wrap",
    [
        torch.compile,
        torch.fx.symbolic_trace,
        torch.jit.script,
        lambda model: torch.jit.trace(model, torch.zeros(4, 16)),
        nn.DataParallel,
        torch.optim.swa_utils.AveragedModel,
    ],
    ids=["compiled", "fx", "scripted", "jit trace", "data parallel", "averaged"],
)
def test_wrapped_models_are_traced(wrap: Callable[[nn.Module], nn.Module]) -> None:
    inner = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
    model = wrap(inner)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds = [op.kind for op in tclint.trace(model, torch.zeros(4, 16)).ops]
    assert kinds == ["linear", "norm"]
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_tied_weights_stay_tied() -> None:
    graph = assert_untouched(Tied(), torch.zeros(2, 8, dtype=torch.long))
    (weight,) = (one for one in graph.parameters if one.name == "embed.weight")
    assert weight.aliases == ("head.weight",)


def test_a_model_that_fails_is_left_as_it_was_too() -> None:
    class Failing(LazilyMade):
        def forward(self, x: torch.Tensor) -> Any:
            super().forward(x)
            raise ValueError("not today")

    model, x = Failing(), torch.zeros(4, 16)
    before = picture(model, x)
    with pytest.raises(TargetError, match=r"Failing .*not today"):
        tclint.trace(model, x)
    assert picture(model, x) == before


def test_inputs_are_left_as_they_were() -> None:
    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, batch: Any, *, lengths: torch.Tensor) -> Any:
            x += 1
            lengths += 1
            batch.kept = x
            batch.items.append(x)
            return self.first(x)

    batch = Batch()
    inputs = torch.zeros(4, 16), batch
    lengths = torch.tensor([1, 2])
    model = Greedy()
    before = picture(inputs, lengths)
    tclint.trace(model, inputs, {"lengths": lengths})
    assert picture(inputs, lengths) == before


class Batch:
    def __init__(self) -> None:
        self.items = [1]


def test_a_model_that_a_builder_only_hands_on_is_left_as_it_was() -> None:
    model = Norms()
    before = picture(model)
    tclint.trace(lambda: nn.Sequential(model, nn.Linear(16, 3)), torch.zeros(4, 16))
    assert picture(model) == before


def test_a_graph_of_the_callers_can_still_go_backward() -> None:
    model = Norms()
    loss = (model.norm(torch.randn(4, 16)) * model.table[0, :16]).sum()
    tclint.trace(model, torch.zeros(4, 16))
    loss.backward()
    assert model.norm.weight.grad is not None


def test_the_mode_of_the_caller_is_the_mode_of_the_trace() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout())
    assert tclint.trace(model, torch.zeros(4, 16)).metadata["training"] is True
    assert tclint.trace(model.eval(), torch.zeros(4, 16)).metadata["training"] is False


def settings(**changes: Any) -> Settings:
    return Settings(gpus=("a100",), inputs=("64,100",), **changes)


NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(100, 333)
        self.norm = nn.BatchNorm1d(333)
        self.last = nn.Linear(333, 10)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


def build():
    return Net()
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import importlib

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "net_of_instances.py").write_text(NET)
    yield importlib.import_module("net_of_instances")
    del sys.modules["net_of_instances"]


def test_findings_of_an_instance_stand_at_the_lines_of_its_class(net: Any) -> None:
    model = net.Net()
    before = picture(model)
    report = tclint.check([model], settings())
    assert picture(model) == before
    assert [entry.target for entry in report.entries] == ["Net"]
    assert report.errors == ()
    (finding,) = (one for one in report.findings if one.code == "DIM001")
    location = finding.location
    assert (finding.target, location.path, location.line) == ("Net", "net_of_instances.py", 13)
    whole = {one.location.line for one in report.findings if one.location.module_path is None}
    assert whole == {5}


def test_instances_builders_texts_and_paths_are_linted_together(net: Any) -> None:
    report = tclint.check(
        [net.Net(), "net_of_instances.py:build", net.build, net.Net, net.Net(), Path("net_of_instances.py")],
        settings(),
    )
    targets = [entry.target for entry in report.entries]
    assert targets == ["net_of_instances.py:build", "Net", "build", "Net (2)", "Net (3)"]
    assert report.source_files == 1
    first, *others = (set(entry.metrics) for entry in report.entries)
    assert all(other == first for other in others)


def test_inference_of_an_instance_is_traced_in_eval_mode(net: Any) -> None:
    model = net.Net()
    before = picture(model)
    (entry,) = tclint.check(model, settings(mode="infer")).entries
    assert picture(model) == before
    assert entry.graph is not None
    assert entry.graph.metadata["training"] is False


def test_a_container_of_torchs_own_is_where_the_caller_is(net: Any) -> None:
    model = nn.Sequential(nn.Linear(100, 333), nn.Linear(333, 10))
    report = tclint.check(model, settings())
    assert [entry.target for entry in report.entries] == ["Sequential"]
    assert {finding.location.path.rpartition("/")[2] for finding in report.findings} == {"test_instances.py"}


def test_an_instance_that_fails_is_an_error_and_the_others_go_on(net: Any) -> None:
    report = tclint.check([nn.Linear(3, 4), net.Net(), nn.Module()], settings())
    assert [entry.target for entry in report.entries] == ["Net"]
    assert [error.target for error in report.errors] == ["Linear", "Module"]
    assert report.exit_code == 2


def test_one_target_is_one_target(net: Any) -> None:
    report = tclint.check("net_of_instances.py:build", settings())
    assert ([entry.target for entry in report.entries], report.errors) == (["net_of_instances.py:build"], ())
    assert tclint.check(Path("net_of_instances.py")).source_files == 1
    assert tclint.check("net_of_instances.py").source_files == 1
    assert [entry.target for entry in tclint.check(net.build, settings()).entries] == ["build"]
    assert [error.target for error in tclint.check("").errors] == [""]
    assert tclint.check([]).exit_code == 0


@pytest.mark.parametrize("wrong", [3, [3], None, [None], [["net.py"]], torch.zeros(2), {"a.py": 1}.values()])
def test_what_is_no_target_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="A target is a path"):
        tclint.check(wrong)


def test_arguments_are_for_builders(net: Any) -> None:
    def build(width: int) -> nn.Module:
        return nn.Linear(100, width)

    report = tclint.check([build, net.Net()], settings(arguments=("width=64",)))
    assert [entry.target for entry in report.entries] == ["build"]
    assert [error.message for error in report.errors] == [
        "Net is built already, and takes no argument 'width'."
    ]


def test_nothing_of_an_instance_is_kept(net: Any, tmp_path: Path) -> None:
    tclint.check(net.Net(), settings())
    assert not (tmp_path / ".tclint_cache").exists()
