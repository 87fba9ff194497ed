"""Where sizes are written, and the search for the edits that change them: traces in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tclint.core.errors import TargetError
from tclint.edits.sizes.candidates import WrittenSizes
from tclint.engine.fixes.files import contents_of, texts_of
from tclint.engine.fixes.search import Found, Search
from tclint.graph.dims.coupled import CoupledDims
from tclint.graph.dims.realized import changed_factors, realized_sizes
from tclint.graph.ops import Graph

torch = pytest.importorskip("torch")

HEAD = """\
import json
import math
import os
from argparse import ArgumentParser
from dataclasses import dataclass
import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(FILE)
"""
INPUTS = "\n\ndef example_inputs():\n    return torch.empty(8, 16)\n"


class InProcess:
    """`Copies` without copies: the file is run with its new text, and what it reads is written beside it."""

    def __init__(self, path: Path, others: Sequence[Path] = ()) -> None:
        self.path = path
        self.editable = tuple(str(file) for file in (path, *others))
        self.traced = 0

    def as_priced(self, graph: Graph) -> Graph:
        return graph

    def trace(self, edited: Sequence[Mapping[str, bytes]]) -> list[Any]:
        return [self._one(contents) for contents in edited]

    def _one(self, contents: Mapping[str, bytes]) -> Any:
        import tclint

        self.traced += 1
        kept = {path: Path(path).read_bytes() for path in contents}
        try:
            for path, data in contents.items():
                Path(path).write_bytes(data)
            names: dict[str, Any] = {"FILE": str(self.path), "__name__": __name__}
            exec(compile(self.path.read_text(), str(self.path), "exec"), names)
            graph = tclint.trace(names["build_model"], names["example_inputs"]())
            return SimpleNamespace(graph=graph, error=None)
        except TargetError as error:
            return SimpleNamespace(graph=None, error=error)
        except Exception as error:
            return SimpleNamespace(graph=None, error=TargetError(str(error)))
        finally:
            for path, data in kept.items():
                Path(path).write_bytes(data)


def search(
    folder: Path, code: str, sizes: Mapping[str, int], others: Mapping[str, str] | None = None
) -> tuple[Found | None, str]:
    """What is found for new sizes of parameters (their first axis), and the edited files as one text."""
    path = folder / "model.py"
    path.write_text(HEAD + code + ("" if "def example_inputs" in code else INPUTS))
    beside = []
    for name, text in (others or {}).items():
        (folder / name).write_text(text)
        beside.append(folder / name)
    copies = InProcess(path, beside)
    graph = copies.trace([{}])[0].graph
    assert graph is not None
    dims = CoupledDims(graph)
    groups = {dims.group_of_parameter(name, 0): size for name, size in sizes.items()}
    changes = {group: size for group, size in groups.items() if group is not None}
    predicted = dims.resize(changes)
    wanted = realized_sizes(dims, predicted)
    assert wanted is not None
    pairs = {
        (old, new)
        for before, after in zip(graph.parameters, predicted.parameters, strict=True)
        for old, new in zip(before.shape, after.shape, strict=True)
        if old != new
    }
    places = {(site.path, site.line) for group in changes for site in group.sites}
    found = Search(copies, dims, (), {}, wanted, 8).run(places, pairs)  # type: ignore[arg-type]
    if found is None:
        return None, ""
    contents = contents_of(texts_of(copies.editable), found.edits)
    assert contents is not None
    return found, "\n".join(data.decode() for data in contents.values())


LINEAR = "nn.Sequential(nn.Linear(16, {0}), nn.ReLU(), nn.Linear({0}, 24))"

WRITTEN = {
    "literals at the layers": (
        f"def build_model():\n    return {LINEAR.format(100)}\n",
        {},
        ["nn.Linear(16, 104), nn.ReLU(), nn.Linear(104, 24)"],
    ),
    "a default": (
        f"def build_model(width=100, steps=100):\n    return {LINEAR.format('width')}\n",
        {},
        ["width=104, steps=100"],
    ),
    "a constant": (
        f"WIDTH = 100\nSTEPS = 100\ndef build_model():\n    return {LINEAR.format('WIDTH')}\n",
        {},
        ["WIDTH = 104\nSTEPS = 100"],
    ),
    "a field of a dataclass": (
        "@dataclass\nclass Config:\n    steps: int = 100\n    hidden_size: int = 100\n"
        f"def build_model():\n    config = Config()\n    return {LINEAR.format('config.hidden_size')}\n",
        {},
        ["steps: int = 100\n    hidden_size: int = 104"],
    ),
    "an argument by position": (
        f"def net(steps, width):\n    return {LINEAR.format('width')}\n"
        "def build_model():\n    return net(100, 100)\n",
        {},
        ["net(100, 104)"],
    ),
    "an option": (
        "def options():\n    parser = ArgumentParser()\n"
        '    parser.add_argument("--steps", type=int, default=100)\n'
        '    parser.add_argument("--hidden-size", type=int, default=100)\n    return parser.parse_args([])\n'
        f"def build_model():\n    args = options()\n    return {LINEAR.format('args.hidden_size')}\n",
        {},
        ['"--steps", type=int, default=100', '"--hidden-size", type=int, default=104'],
    ),
    "JSON": (
        "def build_model():\n"
        '    with open(os.path.join(HERE, "c.json")) as file:\n        c = json.load(file)\n'
        f"    return {LINEAR.format('c[chr(104)]')}\n",
        {"c.json": '{"steps": 100, "h": 100}\n'},
        ['{"steps": 100, "h": 104}'],
    ),
    "YAML": (
        'def build_model():\n    text = open(os.path.join(HERE, "c.yaml")).read()\n'
        '    hidden = int(text.split("hidden: ")[1].split()[0])\n'
        f"    return {LINEAR.format('hidden')}\n",
        {"c.yaml": "steps: 100\nmodel:\n  hidden: 100  # width\n"},
        ["steps: 100\nmodel:\n  hidden: 104  # width\n"],
    ),
    "an expression is rounded up where it stands": (
        f"def build_model(dim=100):\n    hidden = int(8 * dim / 3)\n    return {LINEAR.format('hidden')}\n",
        {},
        ["hidden = (int(8 * dim / 3) + 7) // 8 * 8"],
    ),
    "expressions at both layers": (
        f"def build_model(dim=90):\n    return {LINEAR.format('int(dim * 10 / 9)')}\n",
        {},
        ["nn.Linear(16, (int(dim * 10 / 9) + 7) // 8 * 8), nn.ReLU(), nn.Linear((int"],
    ),
    "what it is derived from, not what is derived": (
        "def build_model(heads=4, head_dim=25):\n    width = heads * head_dim\n"
        f"    return {LINEAR.format('width')}\n",
        {},
        ["width = (heads * head_dim + 7) // 8 * 8", "head_dim=26"],
    ),
}


@pytest.mark.parametrize("style", WRITTEN)
def test_the_place_that_holds_a_size_is_found(style: str, tmp_path: Path) -> None:
    code, others, expected = WRITTEN[style]
    size = 272 if "rounded up where" in style else 104  # int(8 * 100 / 3) is 266
    found, text = search(tmp_path, code, {"0.weight": size}, others)
    assert found is not None
    assert found.is_exact
    if style.startswith("what it is derived"):
        assert any(part in text for part in expected)
        return
    for part in expected:
        assert part in text


def test_several_places_change_together(tmp_path: Path) -> None:
    """Each alone gives a model that does not run; of the rest nothing changes."""
    code = (
        "def encoder(width=100):\n    return nn.Linear(16, width)\n"
        "def decoder(width=100, steps=100):\n    return nn.Linear(width, 24)\n"
        "def build_model():\n    return nn.Sequential(encoder(), decoder())\n"
    )
    found, text = search(tmp_path, code, {"0.weight": 104})
    assert found is not None
    assert "encoder(width=104)" in text
    assert "decoder(width=104, steps=100)" in text


def test_sizes_that_follow_from_an_edited_one_may_be_others_if_aligned(tmp_path: Path) -> None:
    """20 -> 24 makes 30 of it 36, which is rounded up to 40: as good as the 32 that was asked for."""
    code = (
        "def build_model(base=20):\n    inner = int(base * 1.5)\n"
        "    layers = nn.Linear(16, base), nn.ReLU(), nn.Linear(base, inner), nn.Linear(inner, 8)\n"
        "    return nn.Sequential(*layers)\n"
    )
    found, text = search(tmp_path, code, {"0.weight": 24, "2.weight": 32})
    assert found is not None
    assert not found.is_exact
    assert sorted(size for group, size in found.sizes.items() if size != group.size) == [24, 40]
    assert "base=24" in text
    assert "(int(base * 1.5) + 7) // 8 * 8" in text


def test_a_size_that_no_file_holds_is_not_found(tmp_path: Path) -> None:
    width = "sum(map(len, ['ten chars!'] * 10))"
    code = f"def build_model():\n    width = {width}\n    return {LINEAR.format('width')}\n"
    assert search(tmp_path, code, {"0.weight": 104}) == (None, "")


def test_a_model_that_branches_on_the_size_is_not_taken(tmp_path: Path) -> None:
    code = (
        "def build_model(width=100):\n    more = [nn.Tanh()] if width == 104 else []\n"
        "    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 24), *more)\n"
    )
    found, _ = search(tmp_path, code, {"0.weight": 104})
    assert found is None


def test_a_size_that_is_a_setting_too_is_not_taken(tmp_path: Path) -> None:
    """The same shapes, but another dropout."""
    layers = f"{LINEAR.format('WIDTH')[:-1]}, nn.Dropout(WIDTH / 1000))"
    code = f"WIDTH = 100\ndef build_model():\n    return {layers}\n"
    assert search(tmp_path, code, {"0.weight": 104}) == (None, "")
    same, _ = search(tmp_path, code.replace("WIDTH / 1000", "0.1"), {"0.weight": 104})
    assert same is not None


def test_numbers_that_are_made_of_a_size_are_told() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.width = torch.nn.Linear(16, width), width

        def forward(self, x: Any) -> Any:
            return self.first(x) * self.width**0.5 + 2

    import tclint

    before, after = (tclint.trace(lambda size=size: Scaled(size), torch.empty(8, 16)) for size in (100, 104))
    [(op, old, new)] = changed_factors(before, after)
    assert (op.name, old, new) == ("mul", 10.0, 104**0.5)


def test_names_lead_to_numbers_through_calls_and_keys(tmp_path: Path) -> None:
    path = str(tmp_path / "model.py")
    text = (
        "class Net(nn.Module):\n    def __init__(self, cfg):\n        self.fc = nn.Linear(cfg.d_ff, 8)\n"
        "cfg.d_ff = sizes['inner']\nsizes = {'inner': 1_001, 'other': 1001}\n"
    )
    first, *rest = WrittenSizes({path: text}).candidates({(path, 3)}, {(1001, 1008)})
    assert (first.written.name, first.written.text, first.new) == ("inner", "1_001", "1_008")
    assert all(item.distance > first.distance for item in rest)
