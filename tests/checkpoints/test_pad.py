"""Checkpoints padded: every format, tied weights, optimizer states, and what is refused."""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from torch import nn

import tclint
from tclint.checkpoints import padding
from tclint.cli.main import cli
from tclint.core.errors import UsageError
from tclint.graph.weights.plan import WeightPlan

WORDS, PADDED_WORDS = 13, 16
HIDDEN, PADDED_HIDDEN = 5, 8


class Net(nn.Module):
    """A tied vocabulary, a batch norm, and parameters of several ranks."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 6)
        self.up, self.norm, self.down = (
            nn.Conv1d(6, hidden, 3, padding=1),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, 6),
        )
        self.head = nn.Linear(6, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.up(self.words(x).mT)).relu().mT
        return self.head(self.down(x))


@pytest.fixture(scope="module")
def plan() -> WeightPlan:
    nets = Net(WORDS, HIDDEN), Net(PADDED_WORDS, PADDED_HIDDEN)
    return tclint.verify_padding(*nets, torch.randint(0, WORDS, (2, 4)))


@pytest.fixture(scope="module")
def plan_file(plan: WeightPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps({"schema_version": "1", "steps": [], "weights": plan.to_json()}))
    return path


def trained() -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = Net(WORDS, HIDDEN)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randint(0, WORDS, (4, 4))).logsumexp(-1).sum().backward()
        optimizer.step()
    return net.eval(), optimizer


def _with_weight_norm(layer: nn.Linear, has_it: bool) -> nn.Module:
    """With a length per entry of the hidden width."""
    dim = 0 if layer.out_features > 6 or layer.out_features == HIDDEN else 1
    return nn.utils.parametrizations.weight_norm(layer, dim=dim) if has_it else layer


def pad(checkpoint: Path, plan_file: Path, output: Path, *flags: str) -> Result:
    given = ["pad", str(checkpoint), "--plan", str(plan_file), "--output", str(output), *flags]
    return CliRunner().invoke(cli, given)


def assert_computes_the_same(state: Mapping[str, Any], net: Net) -> Net:
    larger = Net(PADDED_WORDS, PADDED_HIDDEN).eval()
    larger.load_state_dict(dict(state))
    x = torch.randint(0, WORDS, (3, 4))
    assert torch.allclose(larger(x)[..., :WORDS], net(x), atol=1e-6)
    assert torch.equal(larger.norm.running_var[HIDDEN:], torch.ones(PADDED_HIDDEN - HIDDEN))
    return larger


def test_the_plan_survives_json(plan: WeightPlan) -> None:
    assert WeightPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert [(group.old_size, group.new_size) for group in plan.groups] == [(13, 16), (5, 8)]
    assert (plan.proof.verdict, plan.proof.runs, plan.proof.gradients) == ("exact_with", 3, True)
    assert plan.proof.inputs == ("int64[2,4]",)


def test_only_axes_that_grow_are_planned(plan: WeightPlan) -> None:
    for tensor in plan.tensors:
        sizes = zip(tensor.old_shape, tensor.new_shape, strict=True)
        assert [axis.axis for axis in tensor.axes] == [
            at for at, (old, new) in enumerate(sizes) if old != new
        ]


@pytest.mark.parametrize("dim", [0, 1])
def test_directions_of_a_weight_norm_get_ones(dim: int) -> None:
    """A direction of zeros has no length to divide by: what is added would be no number."""
    small, large = (
        nn.Sequential(
            _with_weight_norm(nn.Linear(6, hidden), dim == 0),
            nn.Tanh(),
            _with_weight_norm(nn.Linear(hidden, 6), dim == 1),
        )
        for hidden in (HIDDEN, PADDED_HIDDEN)
    )
    found = tclint.verify_padding(small, large, torch.randn(2, 6))
    assert found.proof.verdict == "exact"
    (direction,) = [tensor for tensor in found.tensors if tensor.name.endswith("original1")]
    assert [(axis.axis, axis.fill) for axis in direction.axes] == [(dim, 1.0)]


def test_a_proof_is_of_its_plan_alone(plan: WeightPlan) -> None:
    data = plan.to_json()
    data["tensors"][0]["axes"][0]["segments"] = [[0, 3, WORDS]]
    changed = WeightPlan.from_json(data).proof
    assert (changed.verdict, changed.reason) == (
        "unproved", "the plan was changed after the run that compared them")  # fmt: skip
    without = WeightPlan.from_json({**plan.to_json(), "proof": None}).proof
    assert (without.verdict, without.reason) == ("unproved", "no run has compared the two models")


def test_a_state_dict(plan: WeightPlan) -> None:
    net, _ = trained()
    state = net.state_dict()
    made = tclint.pad_state_dict(state, {"weights": plan.to_json()})
    assert_computes_the_same(made, net)
    assert made["words.weight"] is made["head.weight"]  # tied weights once
    assert made["down.bias"] is state["down.bias"]
    assert state["words.weight"].shape == (WORDS, 6)
    assert made._metadata is state._metadata  # type: ignore[attr-defined]


def test_a_torch_file_with_its_optimizer(plan_file: Path, tmp_path: Path) -> None:
    net, optimizer = trained()
    checkpoint, output = tmp_path / "in.pt", tmp_path / "out.pt"
    prefixed = {f"module.{name}": value for name, value in net.state_dict().items()}
    torch.save({"epoch": 3, "model": prefixed, "optimizer": optimizer.state_dict()}, checkpoint)

    result = pad(checkpoint, plan_file, output, "--optimizer")
    assert result.exit_code == 0, result.output
    assert "13 -> 16 (words.weight)\n" in result.stdout
    assert "exact only with these edits (3 runs of both models in float64):" in result.stdout
    assert "output 0 cut to the first 13 entries" in result.stdout
    assert "warning" not in result.stderr
    loaded = torch.load(output)
    assert loaded["epoch"] == 3
    state = {name.removeprefix("module."): value for name, value in loaded["model"].items()}
    assert state["words.weight"].data_ptr() == state["head.weight"].data_ptr()
    larger = assert_computes_the_same(state, net)
    resumed = torch.optim.AdamW(larger.parameters())
    resumed.load_state_dict(loaded["optimizer"])
    for name, parameter in larger.named_parameters():
        assert resumed.state[parameter]["exp_avg"].shape == parameter.shape
        old = optimizer.state[net.get_parameter(name)]["exp_avg"]
        kept = resumed.state[parameter]["exp_avg"][tuple(map(slice, old.shape))]
        assert torch.equal(kept, old)
        assert resumed.state[parameter]["exp_avg"].count_nonzero() == old.count_nonzero()

    result = pad(checkpoint, plan_file, output)
    assert "optimizer state under optimizer is left out" in result.stderr
    assert set(torch.load(output)) == {"epoch", "model"}


def test_optimizer_groups_of_decayed_and_other_parameters(plan: WeightPlan) -> None:
    from tclint.checkpoints.torch_file import pad_optimizer, padded

    net, _ = trained()
    parts = [[p for p in net.parameters() if (p.dim() > 1) is decayed] for decayed in (True, False)]
    optimizer = torch.optim.AdamW([{"params": part} for part in parts])
    net(torch.zeros(2, 4, dtype=torch.long)).sum().backward()
    optimizer.step()
    made = pad_optimizer(optimizer.state_dict(), plan, padded)
    shapes = [tuple(made["state"][number]["exp_avg"].shape) for number in range(7)]
    wanted = [p.shape for p in Net(PADDED_WORDS, PADDED_HIDDEN).parameters()]
    assert sorted(shapes) == sorted(map(tuple, wanted))
    broken = optimizer.state_dict()
    broken["param_groups"][0]["params"].reverse()
    with pytest.raises(UsageError, match="does not say which parameters"):
        pad_optimizer(broken, plan, padded)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_safetensors_file(plan_file: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    net, _ = trained()
    checkpoint, output = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    state = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in net.state_dict().items()
    }
    del state["head.weight"]  # as save_model does with what is tied
    write_safetensors(checkpoint, state)
    result = pad(checkpoint, plan_file, output)
    assert result.exit_code == 0, result.output
    assert "8 of 10 tensors padded" in result.stderr
    made = read_safetensors(output, dtype)
    expected = tclint.pad_state_dict({**state, "head.weight": state["words.weight"]}, plan_file)
    for name, value in made.items():
        assert torch.equal(value, expected[name]), name
    assert json.loads(header_of(output))["__metadata__"] == {"format": "pt"}


NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
}


def write_safetensors(path: Path, state: Mapping[str, torch.Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, value in state.items():
        raw = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": NAMES[value.dtype], "shape": list(value.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def header_of(path: Path) -> bytes:
    data = path.read_bytes()
    return data[8 : 8 + struct.unpack("<Q", data[:8])[0]]


def read_safetensors(path: Path, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    text = header_of(path)
    data = np.frombuffer(path.read_bytes(), np.uint8)[8 + len(text) :].copy()
    dtypes = {name: kind for kind, name in NAMES.items()}
    found = {}
    for name, entry in json.loads(text).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            found[name] = (
                torch.from_numpy(data[start:end].copy()).view(dtypes[entry["dtype"]]).reshape(entry["shape"])
            )
    assert not any(value.is_floating_point() and value.dtype != dtype for value in found.values())
    return found


def test_rows_are_padded_some_at_a_time(
    plan_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tclint.checkpoints import safetensors_file

    monkeypatch.setattr(safetensors_file, "_CHUNK_BYTES", 64)
    test_a_safetensors_file(plan_file, tmp_path, torch.float32)


def test_refusals_write_nothing(plan: WeightPlan, plan_file: Path, tmp_path: Path) -> None:
    net, _ = trained()
    output = tmp_path / "out.pt"
    checkpoint = tmp_path / "in.pt"

    def refused(words: str, *flags: str, path: Path = checkpoint, plans: Path = plan_file) -> None:
        result = pad(path, plans, output, *flags)
        assert result.exit_code == 2, result.output
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert sorted(tmp_path.iterdir()) == before

    torch.save(Net(12, HIDDEN).state_dict(), checkpoint)
    (tmp_path / "whole.pt").touch()
    torch.save(net, tmp_path / "whole.pt")
    torch.save(tclint.pad_state_dict(net.state_dict(), plan), tmp_path / "padded.pt")
    torch.save({"other": torch.zeros(3)}, tmp_path / "other.pt")
    (tmp_path / "cut.safetensors").write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    inexact = plan.to_json()
    inexact["proof"] |= {"verdict": "inexact", "reason": "layer_norm at net.py:3 gives other values"}
    (tmp_path / "inexact.json").write_text(json.dumps({"weights": inexact}))
    (tmp_path / "unproved.json").write_text(json.dumps({"weights": {**inexact, "proof": None}}))
    (tmp_path / "none.json").write_text("{}")
    (tmp_path / "smaller.json").write_text('{"weights": null}')
    (tmp_path / "before.json").write_text(json.dumps({"weights": plan.to_json() | {"schema_version": "1"}}))
    write_safetensors(tmp_path / "short.safetensors", net.state_dict())
    whole = (tmp_path / "short.safetensors").read_bytes()
    (tmp_path / "short.safetensors").write_bytes(whole[:-1])
    before = sorted(tmp_path.iterdir())
    refused("words.weight has the shape 12x6, not 13x6")
    refused("is padded", path=tmp_path / "padded.pt")
    refused("none of the weights", path=tmp_path / "other.pt")
    refused("holds more than tensors", path=tmp_path / "whole.pt")
    refused("not a readable safetensors file", path=tmp_path / "cut.safetensors")
    refused("not a readable safetensors file", path=tmp_path / "short.safetensors")
    refused("no plan of weights of schema version 2", plans=tmp_path / "before.json")
    refused("No such file or directory", path=tmp_path / "missing.pt")
    refused("tclint fix --plan writes one", plans=tmp_path / "missing.json")
    refused("has no weights to be read", plans=tmp_path / "none.json")
    refused("its edits make no size of them larger", plans=tmp_path / "smaller.json")
    refused("--inexact", plans=tmp_path / "inexact.json")
    refused("no run has compared the two models", plans=tmp_path / "unproved.json")
    torch.save(net.state_dict(), checkpoint)
    result = pad(checkpoint, tmp_path / "inexact.json", output, "--inexact")
    assert result.exit_code == 0
    assert "not exact: layer_norm at net.py:3 gives other values" in result.stdout
    assert output.exists()


Header = dict[str, Any]


def changed(entry: str, **values: object) -> Callable[[Header], None]:
    """Give one tensor of a header other values."""
    return lambda header: header[entry].update(values)


def shifted(entry: str, start: int, end: int) -> Callable[[Header], None]:
    def shift(header: Header) -> None:
        first, last = header[entry]["data_offsets"]
        header[entry]["data_offsets"] = [first + start, last + end]

    return shift


HOSTILE_HEADERS: dict[str, Callable[[Header], None]] = {
    "short": shifted("words.weight", 0, -4),
    "long": shifted("words.weight", 0, 4),
    "negative": shifted("words.weight", -8, -8),
    "out of range": shifted("down.bias", 1 << 40, 1 << 40),
    "beyond 64 bits": shifted("down.bias", 1 << 70, 1 << 70),
    "backwards": lambda header: header["down.bias"]["data_offsets"].reverse(),
    "overlapping": lambda header: header["up.weight"].update(header["words.weight"]),
    "one offset": changed("down.bias", data_offsets=[0]),
    "three offsets": changed("down.bias", data_offsets=[0, 24, 24]),
    "fractions": changed("down.bias", data_offsets=[0.0, 24.0]),
    "texts": changed("down.bias", data_offsets=["0", "24"]),
    "truth values": changed("norm.num_batches_tracked", shape=[True]),
    "another dtype": changed("down.bias", dtype="F16"),
    "no dtype": changed("down.bias", dtype=None),
    "a list as dtype": changed("down.bias", dtype=["F32"]),
    "another shape": changed("down.bias", shape=[7]),
    "a shape of texts": changed("down.bias", shape=["6"]),
    "a negative shape": changed("down.bias", shape=[-6]),
    "a tensor less": lambda header: header.pop("up.bias"),
    "no offsets": lambda header: header["down.bias"].pop("data_offsets"),
    "no table": lambda header: header.update({"down.bias": 3}),
    "metadata of lists": lambda header: header.update({"__metadata__": {"a": [1]}}),
    "half a character": lambda header: header.update({"\ud800": header.pop("down.bias")}),
}
HOSTILE_TEXTS = {
    "deep": b"[" * 100_000,
    "deep tables": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a list": b"[]",
    "no text": b"\xff" * 50,
    "nothing": b"",
    "a long number": b'{"a": ' + b"9" * 5_000 + b"}",
}


@pytest.mark.libraries
@pytest.mark.parametrize("with_library", [True, False])
def test_bad_safetensors_never_become_good_ones(
    plan_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_library: bool
) -> None:
    if with_library:
        pytest.importorskip("safetensors")
    else:
        monkeypatch.setitem(sys.modules, "safetensors", None)
    path, output = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    net, _ = trained()
    write_safetensors(path, {name: value for name, value in net.state_dict().items() if name[0] != "h"})
    good, text = path.read_bytes(), header_of(path)
    body = good[8 + len(text) :]
    files = {"cut": good[:-1], "cut header": good[:100], "more": good + b"1", "empty": b"", "seven": good[:7]}
    files |= {name: struct.pack("<Q", len(it)) + it + body for name, it in HOSTILE_TEXTS.items()}
    twice = text[:-1] + b", " + text[1:]
    files["names twice"] = struct.pack("<Q", len(twice)) + twice + body
    files["a huge header"] = struct.pack("<Q", 1 << 63) + good[8:]
    for name, change in HOSTILE_HEADERS.items():
        header = json.loads(text)
        change(header)
        changed_text = json.dumps(header).encode()
        files[name] = struct.pack("<Q", len(changed_text)) + changed_text + body
    for name, data in files.items():
        path.write_bytes(data)
        result = pad(path, plan_file, output)
        assert result.exit_code == 2, name
        assert "in.safetensors is not a readable safetensors file: " in result.stderr, name
        assert len(result.stderr.strip().splitlines()) == 1, name
        assert len(result.stderr) < 500, name
        assert list(tmp_path.iterdir()) == [path], name
    path.write_bytes(good)
    assert pad(path, plan_file, output).exit_code == 0


def rezipped(
    path: Path, change: Callable[[str, bytes], bytes] = lambda _, data: data, compression: int = 0
) -> bytes:
    """The archive of a torch file written again, with other records."""
    written = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(written, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return written.getvalue()


def test_bad_torch_files_never_become_good_ones(plan_file: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "in.pt", tmp_path / "out.pt"
    net, _ = trained()
    torch.save(net.state_dict(), path)
    good = path.read_bytes()
    weight = net.words.weight.detach().numpy().tobytes()
    count = b"K" + bytes([net.words.weight.numel()])  # how a pickle has the elements of its storage
    twice = io.BytesIO(good)
    with zipfile.ZipFile(twice, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(archive.namelist()[-1], b"")
    files = {
        "cut": good[:-100],
        "another byte": good.replace(weight[:8], weight[:7] + b"!"),
        "a short record": rezipped(path, lambda _, data: data[:16] if data == weight else data),
        "a long record": rezipped(path, lambda _, data: data + b"1" if data == weight else data),
        "more elements": rezipped(
            path, lambda name, data: data.replace(count, b"K\xf0", 1) if name.endswith(".pkl") else data
        ),
        "a record twice": twice.getvalue(),
        "compressed": rezipped(path, compression=zipfile.ZIP_DEFLATED),
        "half a pickle": rezipped(path, lambda name, data: data[:99] if name.endswith(".pkl") else data),
    }
    for name, data in files.items():
        assert data != good, name
        path.write_bytes(data)
        result = pad(path, plan_file, output)
        assert result.exit_code == 2, name
        assert "in.pt cannot be loaded by torch: " in result.stderr, name
        assert len(result.stderr.strip().splitlines()) == 1, name
        assert list(tmp_path.iterdir()) == [path], name


def test_a_file_that_breaks_off_leaves_what_was_there(
    plan: WeightPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, _ = trained()
    checkpoint, output = tmp_path / "in.pt", tmp_path / "out.pt"
    torch.save(net.state_dict(), checkpoint)
    output.write_text("before")

    def full(*given: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UsageError, match="Cannot write"):
        padding.pad_checkpoint(str(checkpoint), plan, str(output))
    assert output.read_text() == "before"
    assert sorted(tmp_path.iterdir()) == [checkpoint, output]


def test_the_vocabulary_of_a_small_gpt2(tmp_path: Path) -> None:
    import importlib.util

    path = Path(__file__).resolve().parents[2] / "fixtures" / "gpt2.py"
    spec = importlib.util.spec_from_file_location("gpt2_to_pad", path)
    assert spec is not None
    assert spec.loader is not None
    gpt2 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpt2)
    sizes = {"block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 12}
    original = gpt2.build_model(vocab_size=257, **sizes).eval()
    larger = gpt2.build_model(vocab_size=320, **sizes).eval()
    plan = tclint.verify_padding(original, larger, gpt2.example_inputs(2, 16, 257))
    assert [tensor.names for tensor in plan.tensors] == [("token_embedding.weight", "head.weight")]
    larger.load_state_dict(tclint.pad_state_dict(original.state_dict(), plan))
    tokens = torch.randint(0, 257, (2, 16))
    assert torch.equal(larger(tokens)[..., :257], original(tokens))
