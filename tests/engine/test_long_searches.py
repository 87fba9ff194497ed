"""How far tclint looks for the programs that make a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tclint import check
from tclint.config.settings import Settings
from tclint.engine.report import Entry
from tclint.engine.script import models

WIDE = """
from torch import nn


class Wide(nn.Module):
    def __init__(self, width{default}):
        super().__init__()
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(x)
"""
DEFAULT = "=512"

TRAIN = """
import torch
{imports}

net = {makes}
loss = torch.nn.functional.cross_entropy(net(torch.rand(8, width)), torch.zeros(8).long())
loss.backward()
"""

SIZES = f"WIDTH = 64\n{'# How the width was found.' * 40}\n"
FROM_SIZES = TRAIN.format(
    imports="from sizes import WIDTH as width\nfrom wide import Wide", makes="Wide(width)"
)


def project(folder: Path, default: str = DEFAULT, **files: str) -> str:
    for name, text in {"wide": WIDE.format(default=default), **files}.items():
        path = folder / f"{name.replace('__', '/', 1)}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (folder / "pyproject.toml").touch()
    return f"{folder / 'wide.py'}:Wide"


def entry_of(target: str, **settings: int) -> Entry:
    report = check(target, Settings(cache=False, run_programs=False, **settings))
    assert not report.errors, report.errors[0].message
    return report.entries[0]


def width_of(entry: Entry) -> int:
    return (entry.parameters - 3) // 3


def test_programs_that_cannot_train_the_model_are_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = models.parse

    def noted(text: str) -> object:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(models, "parse", noted)
    train = TRAIN.format(imports="from {0} import Wide\nwidth = 32", makes="Wide(width)")
    unrelated = train.format("another")
    shows = "from wide import Wide\n\nprint(Wide(16))\n"
    another = "class Wide:\n    pass\n"
    target = project(tmp_path, another=another, unrelated=unrelated, shows=shows)
    assert width_of(entry_of(target)) == 512
    assert parsed
    assert not {unrelated, shows, another} & {*parsed}
    project(tmp_path, train=train.format("wide"))
    assert width_of(entry_of(target)) == 32
    assert not {unrelated, shows, another} & {*parsed}


def test_a_test_that_trains_a_small_model_says_nothing_of_the_defaults(tmp_path: Path) -> None:
    small = TRAIN.format(imports="from wide import Wide\nwidth = 4", makes="Wide(width)")
    assert width_of(entry_of(project(tmp_path, tests__test_wide=small))) == 512


def test_a_class_that_a_package_registers_is_found(tmp_path: Path) -> None:
    registry = "KNOWN = {}\n\n\ndef known(cls):\n    KNOWN[cls.__name__] = cls\n    return cls\n"
    builder = (
        "from zoo.registry import KNOWN\n\n\ndef build(name, **kwargs):\n    return KNOWN[name](**kwargs)\n"
    )
    wide = WIDE.format(default=DEFAULT).replace(
        "class Wide", "from zoo.registry import known\n\n\n@known\nclass Wide"
    )
    train = TRAIN.format(imports="from zoo import build\nwidth = 48", makes='build("Wide", width=width)')
    project(
        tmp_path,
        zoo____init__="from zoo.builder import build\nfrom zoo.wide import Wide\n",
        zoo__registry=registry,
        zoo__builder=builder,
        zoo__wide=wide,
        train=train,
    )
    assert width_of(entry_of(f"{tmp_path / 'zoo' / 'wide.py'}:Wide")) == 48


def test_what_a_long_search_leaves_out_is_said(tmp_path: Path) -> None:
    target = project(tmp_path, sizes=SIZES, train=FROM_SIZES)
    assert width_of(entry_of(target)) == 64
    entry = entry_of(target, program_events=20)
    assert width_of(entry) == 512
    [said] = [one.what for one in entry.assumptions if "cut short" in one.what]
    assert said.startswith(
        "made with its defaults: the search for programs that make it was cut short before "
    )
    assert "sizes.py" in said
    assert "train.py" not in said


def test_the_error_says_what_a_long_search_leaves_out(tmp_path: Path) -> None:
    target = project(tmp_path, default="", sizes=SIZES, train=FROM_SIZES)
    assert width_of(entry_of(target)) == 64
    [error] = check(target, Settings(cache=False, run_programs=False, program_events=1)).errors
    assert "needs arguments (width)" in error.message
    assert "Perhaps a program tells: the search for programs that make it was cut short" in error.message
    assert "train.py ('program-events')." in error.message
