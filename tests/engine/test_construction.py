"""A class that needs arguments, named alone: a program of its project says what they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tclint import check
from tclint.config.settings import Settings
from tclint.engine.report import Entry, Report

MODEL = """
import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, floors, width, head, act="relu"):
        super().__init__()
        self.floors = nn.ModuleList(nn.Linear(width, width) for _ in range(floors))
        self.head = nn.Linear(width, sum(head))

    def forward(self, x):
        for floor in self.floors:
            x = floor(x).relu()
        return self.head(x)
"""

PARSER = """
import argparse
import torch
from model import Tower

parser = argparse.ArgumentParser()
parser.add_argument("--floors", type=int, default=3)
parser.add_argument("--width", type=int, default=48)


def build(options, head):
    return Tower(options.floors, width=2 * 24 if head else options.width, head=head, act="gelu")
"""


def report_on(tmp_path: Path, *arguments: str, **files: str) -> Report:
    for name, text in {"model": MODEL, **files}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    return check(f"{tmp_path / 'model.py'}:Tower", Settings(cache=False, arguments=arguments))


def entry_of(report: Report) -> Entry:
    assert not report.errors, report.errors[0].message
    return report.entries[0]


def assumed(entry: Entry) -> str:
    return next(item.what for item in entry.assumptions if "as its project does" in item.what)


def test_what_the_file_itself_makes_is_built(tmp_path: Path) -> None:
    demo = 'if __name__ == "__main__":\n    size = 40\n    Tower(2, size, [4, 6])(torch.rand(8, size))\n'
    report = report_on(tmp_path, model=MODEL + demo)
    entry = entry_of(report)
    assert entry.parameters == 2 * (40 * 40 + 40) + 40 * 10 + 10
    assert "floors = 2, width = 40 and head = [4, 6]" in assumed(entry)
    assert entry.settings is not None
    assert entry.settings.arguments == ("floors=2", "width=40", "head=[4, 6]")


def test_options_of_a_script_count_with_their_defaults(tmp_path: Path) -> None:
    train = PARSER + "\noptions = parser.parse_args()\nnet = build(options, (5, 5))\n"
    entry = entry_of(report_on(tmp_path, train=train))
    assert entry.parameters == 3 * (48 * 48 + 48) + 48 * 10 + 10
    assert 'head = (5, 5) and act = "gelu"' in assumed(entry)


def test_what_the_user_gives_stays(tmp_path: Path) -> None:
    train = PARSER + "\noptions = parser.parse_args()\nnet = build(options, (5, 5))\n"
    entry = entry_of(report_on(tmp_path, "width=64", train=train))
    assert entry.parameters == 3 * (64 * 64 + 64) + 64 * 10 + 10
    assert "width" not in assumed(entry)


def test_a_command_names_what_reading_does_not_show(tmp_path: Path) -> None:
    train = PARSER + "\noptions = parser.parse_args()\nnet = build(options, torch.load('heads.pt'))\n"
    train = train.replace("Tower(options.floors", "Tower(torch.load('floors.pt')")
    [error] = report_on(tmp_path, train=train).errors
    assert "Tower needs arguments (floors, width, head)" in error.message
    assert (
        "train.py:12 makes one, and only running it with its data tells what it gives for floors and head"
        in error.message
    )
    assert (
        "model.py:Tower --arg floors=VALUE --arg width=48 --arg head=VALUE --arg 'act=\"gelu\"'"
        in error.message
    )


def test_the_fullest_call_counts(tmp_path: Path) -> None:
    one = "from model import Tower\n\n\ndef tower(head):\n    return Tower(4, 32, head)\n"
    other = "from model import Tower\n\nnet = Tower(2, 16, [10])\n"
    entry = entry_of(report_on(tmp_path, aa=one, bb=other))
    assert entry.parameters == 2 * (16 * 16 + 16) + 16 * 10 + 10


@pytest.mark.parametrize("other", ["", "class Tower:\n    pass\n\n\nTower()\n"])
def test_without_a_call_the_message_is_that_of_the_target(tmp_path: Path, other: str) -> None:
    [error] = report_on(tmp_path, other=other).errors
    assert "give each with --arg" in error.message


def test_a_model_that_then_fails_says_what_it_was_made_with(tmp_path: Path) -> None:
    broken = MODEL.replace("return self.head(x)", "return self.heads(x)")
    [error] = report_on(tmp_path, model=broken, train="from model import Tower\n\nTower(1, 8, [8])\n").errors
    assert "has no attribute 'heads'" in error.message
    assert "made with floors = 1, width = 8 and head = [8]" in error.message


OPTIONAL = """
import torch
from torch import nn


class Labelled(nn.Module):
    def __init__(self, width=16, kinds=None):
        super().__init__()
        self.layer = nn.Linear(width, width)
        if kinds is not None:
            self.kinds = nn.Embedding(kinds, width)

    def forward(self, x, kind):
        return self.layer(x) + self.kinds(kind)
"""


@pytest.mark.parametrize("kinds", [10, None])
def test_a_forward_that_fails_without_is_tried_with_what_the_project_gives(
    tmp_path: Path, kinds: int | None
) -> None:
    (tmp_path / "model.py").write_text(OPTIONAL)
    (tmp_path / "train.py").write_text(f"from model import Labelled\n\nnet = Labelled(24, kinds={kinds})\n")
    (tmp_path / "pyproject.toml").touch()
    report = check(f"{tmp_path / 'model.py'}:Labelled", Settings(cache=False))
    if kinds is not None:
        assert entry_of(report).parameters == 24 * 24 + 24 + 240
        assert "width = 24 and kinds = 10" in assumed(entry_of(report))
    else:
        [error] = report.errors
        assert "no attribute 'kinds'" in error.message
        assert "made with" not in error.message


def test_a_function_is_called_as_the_project_calls_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        f"{MODEL}\n\ndef build(depth, head):\n    return Tower(depth, 12, head)\n"
    )
    (tmp_path / "train.py").write_text(
        "import model\n\n\ndef main(depth=5):\n    net = model.build(depth, head=[6])\n\n\nmain()\n"
    )
    (tmp_path / "pyproject.toml").touch()
    entry = entry_of(check(f"{tmp_path / 'model.py'}:build", Settings(cache=False)))
    assert entry.parameters == 5 * (12 * 12 + 12) + 12 * 6 + 6
    assert "depth = 5 and head = [6]" in assumed(entry)


README = """
# Towers

Text, and what is no program:

```python
Tower(floors, ...
```

```python
import torch
from model import Tower

tower = Tower(floors=2, width=20, head=[3, 4])
tower(torch.rand(4, 20))
```
"""


def test_the_example_of_a_readme_counts(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README)
    entry = entry_of(report_on(tmp_path))
    assert entry.parameters == 2 * (20 * 20 + 20) + 20 * 7 + 7
    [told] = [item for item in entry.assumptions if "as its project does" in item.what]
    assert told.site is not None
    assert (Path(told.site.path).name, told.site.line) == ("README.md", 14)


def test_a_script_comes_before_the_readme(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README)
    train = "from model import Tower\n\nnet = Tower(1, 12, [5])\n"
    entry = entry_of(report_on(tmp_path, train=train))
    assert entry.parameters == 12 * 12 + 12 + 12 * 5 + 5


def test_a_test_comes_after_the_readme(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README)
    entry = entry_of(report_on(tmp_path, test_model="from model import Tower\n\nnet = Tower(1, 12, [5])\n"))
    assert entry.parameters == 2 * (20 * 20 + 20) + 20 * 7 + 7


def test_an_installed_package_is_no_project_of_its_users(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "towers"
    package.mkdir(parents=True)
    [error] = report_on(package, use="from model import Tower\n\nTower(1, 8, [8])\n").errors
    assert "give each with --arg" in error.message


OPTIONS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, args, drop=0.0):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(args.width, args.width) for _ in range(args.depth)))

    def forward(self, x):
        return self.layers(x)
"""

TRAIN = """
import argparse
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=24)
parser.add_argument("--depth", type=int)
parser.add_argument("--data", required=True)
"""


def report_on_net(tmp_path: Path, *arguments: str, **files: str) -> Report:
    for name, text in {"net": OPTIONS, **files}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    return check(f"{tmp_path / 'net.py'}:Net", Settings(cache=False, arguments=arguments))


def test_an_object_of_options_is_given_with_what_is_known_of_it(tmp_path: Path) -> None:
    train = f"{TRAIN}args = parser.parse_args()\nargs.depth = 2\nNet(args)\n"
    entry = entry_of(report_on_net(tmp_path, train=train))
    assert entry.parameters == 2 * (24 * 24 + 24)
    assert entry.settings is not None
    assert entry.settings.arguments == ("args=Namespace(width=24, depth=2, data=None)",)
    assert assumed(entry).endswith("as its project does; --arg args.FIELD=VALUE sets a field")


def test_a_field_of_it_can_be_set(tmp_path: Path) -> None:
    train = f"{TRAIN}args = parser.parse_args()\nargs.depth = 2\nNet(args)\n"
    entry = entry_of(report_on_net(tmp_path, "args.width=8", train=train))
    assert entry.parameters == 2 * (8 * 8 + 8)


def test_options_that_commands_disagree_on_have_their_defaults_or_the_first_of_them(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(
        "python train.py --data a --width 16 --depth 3\npython train.py --data b --width 20 --depth 5\n"
    )
    trained = "Net(parser.parse_args())(torch.rand(4, 24)).sum().backward()\n"
    entry = entry_of(report_on_net(tmp_path, train=f"import torch\n{TRAIN}{trained}"))
    assert entry.parameters == 3 * (24 * 24 + 24)
    [told] = [one.what for one in entry.assumptions if one.is_doubtful]
    assert re.search(r"by the first of several commands \(\S*train\.sh\)", told)


CONFIGS = """
from net import Net

{config}


def main():
    return Net({made})
"""


@pytest.mark.parametrize(
    ("config", "made"),
    [
        ("class Config:\n    width = 12\n    depth = 2\n", "Config()"),
        (
            "class Config:\n    depth = 2\n    def __init__(self, width):\n        self.width = width\n",
            "Config(12)",
        ),
        (
            "import dataclasses\n\n@dataclasses.dataclass\nclass Config:\n    width: int\n    depth: int = 2",
            "Config(width=12)",
        ),
        (
            "from easydict import EasyDict\ncfg = EasyDict()\ncfg.width = 12\ncfg.depth = 2\n",
            "cfg",
        ),
        ("from ml_collections import ConfigDict\ncfg = ConfigDict()\ncfg.width = 12\ncfg.depth = 2\n", "cfg"),
        (
            "class Config(dict):\n    def __init__(self, **keys):\n        super().__init__(**keys)\n"
            "        self.__dict__ = self\n\n    def override(self, other):\n        self.update(other)\n",
            "Config(width=12, depth=2)",
        ),
    ],
    ids=["a class", "an instance", "a dataclass", "a dict", "a config dict", "a dict of its own"],
)
def test_an_object_that_only_holds_values_is_made_again(tmp_path: Path, config: str, made: str) -> None:
    entry = entry_of(report_on_net(tmp_path, train=CONFIGS.format(config=config, made=made)))
    assert entry.parameters == 2 * (12 * 12 + 12)


def test_what_an_object_computes_is_missing(tmp_path: Path) -> None:
    config = "class Config:\n    depth = 2\n\n    @property\n    def width(self):\n        return 12\n"
    [error] = report_on_net(tmp_path, train=CONFIGS.format(config=config, made="Config()")).errors
    assert "'Namespace' object has no attribute 'width'" in error.message
    assert "It was made with args = Namespace(depth=2), as" in error.message


def test_programs_come_before_the_own_example(tmp_path: Path) -> None:
    demo = 'if __name__ == "__main__":\n    Tower(1, 4, [4])(torch.rand(8, 4))\n'
    entry = entry_of(
        report_on(tmp_path, model=MODEL + demo, train="from model import Tower\n\nTower(2, 16, [10])\n")
    )
    assert entry.parameters == 2 * (16 * 16 + 16) + 16 * 10 + 10


PARTS = """
import torch
from torch import nn


class Parts(nn.Module):
    def __init__(self, classes, width=8, kinds=None, size=64):
        super().__init__()
        assert size == 64
        self.layer = nn.Linear(width, classes)

    def forward(self, x):
        return self.layer(x)
"""


def test_what_fails_as_its_project_makes_it_is_made_with_what_it_needs_alone(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "train.py").write_text("from parts import Parts\n\nParts(6, 16, size=32)\n")
    (tmp_path / "pyproject.toml").touch()
    entry = entry_of(check(f"{tmp_path / 'parts.py'}:Parts", Settings(cache=False)))
    assert entry.parameters == 8 * 6 + 6
    assert "made with classes = 6, as" in assumed(entry)


def test_what_cannot_be_built_with_its_defaults_is_built_as_its_project_does(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text('CFG = {"width": 20, "name": "small"}\n')
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self, cfg=None):\n"
        '        super().__init__(cfg["width"], cfg["width"])\n'
    )
    (tmp_path / "train.py").write_text("from config import CFG\nfrom net import Net\n\nNet(cfg=CFG)\n")
    (tmp_path / "pyproject.toml").touch()
    entry = entry_of(check(f"{tmp_path / 'net.py'}:Net", Settings(cache=False)))
    assert entry.parameters == 20 * 20 + 20


WORDS = """
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, words, classes, width=32):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.words(tokens))


class Scorer(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.layer = nn.Linear(features, classes)

    def forward(self, x):
        return self.layer(x)
"""


def report_on_sizes(tmp_path: Path, name: str, train: str, *arguments: str) -> Report:
    (tmp_path / "reader.py").write_text(WORDS)
    (tmp_path / "train.py").write_text(f"import numpy\nimport pickle\nfrom reader import {name}\n\n{train}\n")
    (tmp_path / "pyproject.toml").touch()
    return check(f"{tmp_path / 'reader.py'}:{name}", Settings(cache=False, arguments=arguments))


def test_sizes_of_data_are_guessed_and_said(tmp_path: Path) -> None:
    train = (
        "table = numpy.load('rows.npy')\nnet = Scorer(table.shape[1], len(pickle.load(open('names', 'rb'))))"
    )
    entry = entry_of(report_on_sizes(tmp_path, "Scorer", train))
    assert entry.parameters == 128 * 128 + 128
    [told] = [one for one in entry.assumptions if "a guess" in one.what]
    assert told.what.startswith("classes = 128 and features = 128, a guess, as only the program's data tell")
    assert told.site is not None
    assert (Path(told.site.path).name, told.site.line) == ("train.py", 6)
    assert entry.settings is not None
    assert entry.settings.arguments == ("classes=128", "features=128")


def test_what_has_a_row_for_each_of_them_has_many(tmp_path: Path) -> None:
    train = "words = pickle.load(open('words', 'rb'))\nnet = Reader(len(words), len(words) - 1, width=64)"
    entry = entry_of(report_on_sizes(tmp_path, "Reader", train, "classes=4"))
    assert entry.parameters == 32768 * 64 + 64 * 4 + 4


def test_figures_that_depend_on_such_a_size_open_the_report(tmp_path: Path) -> None:
    train = "words = pickle.load(open('words', 'rb'))\nnet = Reader(len(words), len(words), width=64)"
    entry = entry_of(report_on_sizes(tmp_path, "Reader", train))
    [told] = [one for one in entry.assumptions if "a guess" in one.what]
    assert told.is_doubtful
    assert "the data decide: the step takes" in told.what
    for metrics in entry.metrics.values():
        assert metrics.step_time_range_us is not None
        shortest, longest = metrics.step_time_range_us
        assert 2 * shortest < longest


def test_a_number_of_layers_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    train = "import json\nfrom model import Tower\n\nTower(len(json.load(open('floors'))), 16, [4])\n"
    [error] = report_on(tmp_path, train=train).errors
    assert "only running it with its data tells what it gives for floors" in error.message


def test_what_nothing_tells_is_a_size_or_a_shape_if_weights_have_it(tmp_path: Path) -> None:
    train = "import envs\n\nenv = envs.make('Walker')\nScorer(env.width, env.actions.n)"
    entry = entry_of(report_on_sizes(tmp_path, "Scorer", train))
    assert entry.parameters == 128 * 128 + 128
    assert any("features = 128 and classes = 128, a guess" in one.what for one in entry.assumptions)
    (tmp_path / "policy.py").write_text(POLICY)
    (tmp_path / "train.py").write_text(
        "import envs\nfrom policy import Policy\n\nenv = envs.make()\nPolicy(env.seen.shape, slope=0.2)\n"
    )
    entry = entry_of(check(f"{tmp_path / 'policy.py'}:Policy", Settings(cache=False)))
    assert entry.parameters == 128 * 8 + 8
    assert any("seen = (128,), a guess" in one.what for one in entry.assumptions)


POLICY = """
from torch import nn


class Policy(nn.Module):
    def __init__(self, seen, slope):
        super().__init__()
        self.layer = nn.Linear(*seen, 8)
        self.act = nn.LeakyReLU(slope)

    def forward(self, state):
        return self.act(self.layer(state))
"""


def test_what_changes_no_weight_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "policy.py").write_text(POLICY)
    (tmp_path / "train.py").write_text(
        "import envs\nfrom policy import Policy\n\nPolicy((24,), envs.slope())\n"
    )
    (tmp_path / "pyproject.toml").touch()
    [error] = check(f"{tmp_path / 'policy.py'}:Policy", Settings(cache=False)).errors
    assert "only running it with its data tells what it gives for slope" in error.message


WIDE = """
import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, width=512, classes=10, depth=1):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
"""

TRAIN_WIDE = """
import torch
from wide import Wide

net = Wide({arguments})
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x, y in torch.load("batches.pt"):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def report_on_wide(tmp_path: Path, settings: Settings | None = None, **files: str) -> Entry:
    for name, text in {"wide": WIDE, **files}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    return entry_of(check(f"{tmp_path / 'wide.py'}:Wide", settings or Settings(cache=False)))


def test_a_model_that_runs_by_default_is_made_as_its_project_trains_it(tmp_path: Path) -> None:
    entry = report_on_wide(tmp_path, train=TRAIN_WIDE.format(arguments="64, classes=5"))
    assert entry.parameters == 64 * 64 + 64 + 64 * 5 + 5
    assert "made with width = 64 and classes = 5, as its project does" in assumed(entry)


def test_the_default_stays_where_the_user_says_how_it_runs(tmp_path: Path) -> None:
    train = TRAIN_WIDE.format(arguments="64, classes=5")
    by_default = 512 * 512 + 512 + 512 * 10 + 10
    given = Settings(cache=False, inputs=("float32[8,512]",))
    assert report_on_wide(tmp_path, given, train=train).parameters == by_default
    given = Settings(cache=False, arguments=("classes=20",))
    assert report_on_wide(tmp_path, given, train=train).parameters == 512 * 512 + 512 + 512 * 20 + 20


def test_the_default_stays_where_no_program_trains(tmp_path: Path) -> None:
    show = "import torch\nfrom wide import Wide\n\nprint(Wide(8)(torch.rand(2, 8)))\n"
    assert report_on_wide(tmp_path, show=show).parameters == 512 * 512 + 512 + 512 * 10 + 10


def test_numbers_that_only_running_tells_are_said_first(tmp_path: Path) -> None:
    train = TRAIN_WIDE.format(arguments="64, depth=torch.load('depth.pt')")
    entry = report_on_wide(tmp_path, train=train)
    [told] = [one for one in entry.assumptions if one.is_doubtful]
    assert "made with width = 64, as its project does, and depth by default, as only running" in told.what


def test_a_program_that_trains_comes_before_one_that_shows(tmp_path: Path) -> None:
    train = TRAIN_WIDE.format(arguments="64").replace("wide", "narrow").replace("Wide", "Narrow")
    (tmp_path / "narrow.py").write_text(
        WIDE.replace("Wide", "Narrow").replace("width=512", "width").replace("classes=10", "classes=3")
    )
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "run_training.py").write_text(train)
    (tmp_path / "demo.py").write_text("from narrow import Narrow\n\nNarrow(8, classes=2)\n")
    entry = entry_of(check(f"{tmp_path / 'narrow.py'}:Narrow", Settings(cache=False)))
    assert entry.parameters == 64 * 64 + 64 + 64 * 3 + 3


def test_an_example_does_not_hide_the_program_that_trains_the_same(tmp_path: Path) -> None:
    model = WIDE.replace("width=512", "width") + "\n\nif __name__ == '__main__':\n    Wide(64, classes=5)\n"
    demo = "from wide import Wide\n\nWide(8, classes=2)\n"
    train = TRAIN_WIDE.format(arguments="64, classes=5")
    entry = report_on_wide(tmp_path, wide=model, demo=demo, train=train)
    assert entry.parameters == 64 * 64 + 64 + 64 * 5 + 5


def test_files_of_one_program_leave_room_for_others(tmp_path: Path) -> None:
    parts = [f"part{number}" for number in range(8)]
    for part in parts:
        (tmp_path / f"{part}.py").write_text("# Tower\nSIZE = 1\n")
    show = "\n".join(f"from {part} import SIZE" for part in parts)
    (tmp_path / "of_a_package").mkdir()
    (tmp_path / "of_a_package" / "__init__.py").touch()
    (tmp_path / "of_a_package" / "__main__.py").write_text("from model import Tower\n\nTower(2, 40, [4])\n")
    entry = entry_of(report_on(tmp_path, show=f"{show}\n\nprint(SIZE)\n"))
    assert entry.parameters == 2 * (40 * 40 + 40) + 40 * 4 + 4


@pytest.mark.parametrize(
    ("words", "width"), [("args.width or 48", 48), ("args.width and 40 or 24", 24), ("args.size or 48", 56)]
)
def test_or_gives_the_operand_that_counts(tmp_path: Path, words: str, width: int) -> None:
    options = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=None)\n"
        "parser.add_argument('--size', type=int, default=56)\nargs = parser.parse_args()\n"
    )
    entry = report_on_wide(tmp_path, train=options + TRAIN_WIDE.format(arguments=words))
    assert entry.parameters == width * width + width + width * 10 + 10


INI = """
[net]
; by default
width = 40
classes = 6
name = plain
"""

READ_WHOLE = """
import ast
import configparser


def plain(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


config = configparser.ConfigParser()
config.read("net.ini")
net = {key: plain(value) for key, value in config["net"].items()}
width, classes = net["width"], net["classes"]
"""

READ_ONE = """
import configparser

config = configparser.ConfigParser()
config.read("net.ini")
width, classes = config.getint("net", "width"), int(config["net"]["width"]) - 34
"""


@pytest.mark.parametrize("read", [READ_WHOLE, READ_ONE])
def test_ini_files_state_arguments(tmp_path: Path, read: str) -> None:
    (tmp_path / "net.ini").write_text(INI)
    entry = report_on_wide(tmp_path, train=read + TRAIN_WIDE.format(arguments="width, classes"))
    assert entry.parameters == 40 * 40 + 40 + 40 * 6 + 6


def test_a_record_is_given_without_what_only_running_tells(tmp_path: Path) -> None:
    (tmp_path / "keyed.py").write_text(
        "from torch import nn\n\n\nclass Keyed(nn.Linear):\n    def __init__(self, params):\n"
        '        super().__init__(params["width"], 4)\n'
    )
    (tmp_path / "train.py").write_text(
        "import torch\nfrom keyed import Keyed\n\n"
        'Keyed({"width": 20, "gpus": torch.cuda.device_count(), "path": open("where").read()})\n'
    )
    (tmp_path / "pyproject.toml").touch()
    entry = entry_of(check(f"{tmp_path / 'keyed.py'}:Keyed", Settings(cache=False)))
    assert entry.parameters == 20 * 4 + 4


def test_an_attribute_that_is_set_has_no_default(tmp_path: Path) -> None:
    train = (
        "class Rows:\n    def __init__(self):\n        self.table = numpy.load('rows.npy')\n"
        "        self.width = self.table.shape[1]\n\nrows = Rows()\n"
        "Scorer(getattr(rows, 'width', None), 3)"
    )
    entry = entry_of(report_on_sizes(tmp_path, "Scorer", train))
    assert entry.parameters == 128 * 3 + 3


def test_what_trains_with_other_arguments_is_said(tmp_path: Path) -> None:
    (tmp_path / "keyed.py").write_text(
        "from torch import nn\n\n\nclass Wide(nn.Linear):\n    def __init__(self, params):\n"
        '        super().__init__(params["width"], 4)\n'
    )
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "train.py").write_text(
        TRAIN_WIDE.format(arguments="torch.load('params.pt')").replace("wide", "keyed")
    )
    (tmp_path / "demo.py").write_text("from keyed import Wide\n\nWide({'width': 8})\n")
    entry = entry_of(check(f"{tmp_path / 'keyed.py'}:Wide", Settings(cache=False)))
    [told] = [one for one in entry.assumptions if one.is_doubtful]
    assert 'made with params = {"width": 8}, as its project does, although' in told.what
    assert "train.py:5, which trains it, gives what only running tells" in told.what


def test_packages_that_star_import_each_other_are_read(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from .one import *\nSIZE = 72\n")
    (tmp_path / "parts" / "one.py").write_text("from parts import *\n\ndef use():\n    return unknown\n")
    train = "from parts import *\n\nuse()\n" + TRAIN_WIDE.format(arguments="SIZE, 4")
    assert report_on_wide(tmp_path, train=train).parameters == 72 * 72 + 72 + 72 * 4 + 4


ZOO = """
import argparse
from zoo import large, small

FILES = {"small": small, "large": large}

parser = argparse.ArgumentParser()
parser.add_argument("--net", default="small")
parser.add_argument("--width", type=int, default=24)
args = parser.parse_args()
net = FILES[args.net].Net(args)
"""


def test_a_file_that_an_option_may_choose_is_made_as_the_default_is(tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    for name, layers in (("small", 1), ("large", 2)):
        text = OPTIONS.replace("args, drop=0.0", "args").replace("range(args.depth)", f"range({layers})")
        (tmp_path / "zoo" / f"{name}.py").write_text(text)
    (tmp_path / "main.py").write_text(ZOO)
    (tmp_path / "pyproject.toml").touch()
    entry = entry_of(check(f"{tmp_path / 'zoo' / 'large.py'}:Net", Settings(cache=False)))
    assert entry.parameters == 2 * (24 * 24 + 24)
    [told] = [item.what for item in entry.assumptions if "as its project makes another Net" in item.what]
    assert told.startswith('made with args = Namespace(net="small", width=24)')


def test_sizes_of_data_inside_of_lists_and_options_are_guessed(tmp_path: Path) -> None:
    model = (
        "import torch\nfrom torch import nn\n\n\nclass Scorer(nn.Module):\n"
        "    def __init__(self, config):\n        super().__init__()\n"
        "        self.layer = nn.Linear(config.sizes[0], config.width)\n\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
    )
    (tmp_path / "reader.py").write_text(model)
    train = (
        "import numpy\nfrom reader import Scorer\n\n\nclass Config:\n    width = 24\n\n\n"
        "config = Config()\nconfig.sizes = [numpy.load('rows.npy').shape[1]]\nnet = Scorer(config)\n"
    )
    (tmp_path / "train.py").write_text(train)
    # A test's call is complete, but small.
    test = "from reader import Scorer\n\n\ndef test_it():\n"
    (tmp_path / "test_reader.py").write_text(
        f"{test}    class Tiny:\n        width = 2\n        sizes = [2]\n\n    Scorer(Tiny())\n"
    )
    (tmp_path / "pyproject.toml").touch()
    entry = entry_of(check(f"{tmp_path / 'reader.py'}:Scorer", Settings(cache=False)))
    assert entry.parameters == 128 * 24 + 24
    assert any(item.what.startswith("config.sizes = 128, a guess") for item in entry.assumptions)


LOADED = """
import argparse
import torch
import yaml
from model import Tower


def read(path):
    with open(path) as file:
        return yaml.safe_load(file)


parser = argparse.ArgumentParser()
parser.add_argument("--config", default="")
args = parser.parse_args()
options = read(args.config)["model"]
net = Tower(**options)
net(torch.rand(8, 40)).sum().backward()
"""
CONFIG = "model:\n  floors: 2\n  width: 40\n  head: [4, 6]\n"


@pytest.mark.parametrize(
    ("script", "readme"),
    [
        (LOADED.replace('default=""', 'default="tower.yaml"'), ""),
        (LOADED, "```\npython train.py --config tower.yaml --width <width>\n```\n"),
    ],
    ids=["default", "readme"],
)
def test_what_a_configuration_file_holds_counts(tmp_path: Path, script: str, readme: str) -> None:
    (tmp_path / "tower.yaml").write_text(CONFIG)
    (tmp_path / "README.md").write_text(readme)
    entry = entry_of(report_on(tmp_path, train=script))
    assert "floors = 2, width = 40 and head = [4, 6]" in assumed(entry)
    assert entry.graph is not None
    # What is kept of a report is made again when one of these changes.
    read = {Path(path).name for path in entry.graph.metadata["source_files"]}
    assert {"tower.yaml", "train.py", *(["README.md"] if readme else [])} <= read


def test_what_a_readme_leaves_to_the_reader_has_its_default(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("```\npython train.py --floors 2 --width [width]\n```\n")
    train = f"{PARSER}\n\nbuild(parser.parse_args(), [])(torch.rand(8, 48)).sum().backward()\n"
    entry = entry_of(report_on(tmp_path, train=train))
    assert "floors = 2, width = 48" in assumed(entry)


def test_a_list_is_repeated_a_default_number_of_times(tmp_path: Path) -> None:
    script = PARSER.replace("head=head", "head=[4] * options.floors") + "\n\nbuild(parser.parse_args(), [])\n"
    assert "head = [4, 4, 4]" in assumed(entry_of(report_on(tmp_path, train=script)))


def test_a_size_that_is_written_down_comes_before_a_guess(tmp_path: Path) -> None:
    train = (
        "names = pickle.load(open('names', 'rb'))\n"
        "def count():\n    return len(names) if names else 80\nnet = Scorer(8, count())"
    )
    entry = entry_of(report_on_sizes(tmp_path, "Scorer", train))
    assert entry.parameters == 8 * 80 + 80


def test_what_a_configuration_lacks_is_said_with_what_it_was(tmp_path: Path) -> None:
    text = """
from torch import nn

class Config:
    width = None

class Tower(nn.Module):
    def __init__(self, config: Config):
        assert config.width is not None
"""
    (error,) = report_on(tmp_path, model=text).errors
    assert "raised AssertionError: assert config.width is not None (" in error.message
    assert error.message.endswith(
        "; it got config = Config() with its defaults; --arg config.FIELD=VALUE sets a field."
    )


STACK = """
import torch
from torch import nn


class Plain(nn.Linear):
    pass


class Gated(nn.Module):
    def __init__(self, width, _):
        super().__init__()
        self.both = nn.Linear(width, 2 * width)

    def forward(self, x):
        return nn.functional.glu(self.both(x))


class Stack(nn.Module):
    def __init__(self, block, depth, act, device, dtype):
        super().__init__()
        assert device.type in ("cuda", "cpu")
        self.blocks = nn.Sequential(*(nn.Sequential(block(24, 24), act()) for _ in range(depth)))
        self.head = nn.Linear(24, 5, dtype=dtype)

    def forward(self, x):
        return self.head(self.blocks(x))
"""
MADE_OF_PARTS = """
import torch
from torch import nn
{imports}

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
net = Stack({block}, 3, nn.GELU, device, torch.float)
"""
PLAIN_STACK = 3 * (24 * 24 + 24) + 24 * 5 + 5


def report_on_stack(tmp_path: Path, **files: str) -> Report:
    for name, text in {"stack": STACK, **files}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pyproject.toml").touch()
    return check(f"{tmp_path / 'stack.py'}:Stack", Settings(cache=False))


def test_classes_devices_and_what_torch_names_are_given(tmp_path: Path) -> None:
    train = MADE_OF_PARTS.format(imports="from stack import Plain, Stack", block="Plain")
    entry = entry_of(report_on_stack(tmp_path, train=train))
    assert entry.parameters == PLAIN_STACK
    assert entry.settings is not None
    assert set(entry.settings.arguments) == {
        "block=Plain",
        "depth=3",
        "act=torch.nn.GELU",
        'device=torch.device("cuda")',
        "dtype=torch.float32",
    }


def test_a_class_of_another_file_is_given_by_its_modules_name(tmp_path: Path) -> None:
    train = MADE_OF_PARTS.format(imports="from parts import Plain\nfrom stack import Stack", block="Plain")
    parts = "from torch import nn\n\n\nclass Plain(nn.Linear):\n    pass\n"
    entry = entry_of(report_on_stack(tmp_path, train=train, parts=parts))
    assert entry.parameters == PLAIN_STACK
    assert entry.settings is not None
    assert "block=parts.Plain" in entry.settings.arguments


def test_calls_that_disagree_are_said_first_where_none_trains(tmp_path: Path) -> None:
    builders = """


def small(device):
    return Stack(Plain, 3, nn.ReLU, torch.device("cpu"), torch.float)


def large(device):
    return Stack(Gated, 9, nn.ReLU, torch.device("cpu"), torch.float)
"""
    entry = entry_of(report_on_stack(tmp_path, stack=STACK + builders))
    [told] = [one for one in entry.assumptions if one.is_doubtful]
    assert "as its project does, although" in told.what
    assert "makes it otherwise" in told.what


def test_calls_that_agree_are_not(tmp_path: Path) -> None:
    train = MADE_OF_PARTS.format(imports="from stack import Plain, Stack", block="Plain")
    entry = entry_of(report_on_stack(tmp_path, train=train, show=train))
    assert not [one.what for one in entry.assumptions if one.is_doubtful]


def test_rows_for_padding_and_masks_beside_the_words_are_words_too(tmp_path: Path) -> None:
    train = "words = pickle.load(open('words', 'rb'))\nnet = Padded(len(words), 4)"
    padded = (
        "\n\nclass Padded(Reader):\n    def __init__(self, words, classes):\n"
        "        super().__init__(words + 2, classes, 64)\n"
    )
    (tmp_path / "reader.py").write_text(WORDS + padded)
    (tmp_path / "train.py").write_text(f"import pickle\nfrom reader import Padded\n\n{train}\n")
    (tmp_path / "pyproject.toml").touch()
    entry = entry_of(check(f"{tmp_path / 'reader.py'}:Padded", Settings(cache=False)))
    assert entry.parameters == (32768 + 2) * 64 + 64 * 4 + 4


@pytest.mark.parametrize(
    ("given", "known"), [("project='x', config=config", True), ("project='x'", False)], ids=["given", "not"]
)
def test_what_a_run_of_wandb_is_given_is_its_configuration(tmp_path: Path, given: str, known: bool) -> None:
    train = (
        "import wandb\nfrom model import Tower\n\nconfig = {'floors': 2, 'width': 40}\n"
        f"wandb.init({given})\nTower(wandb.config.floors, wandb.config['width'], [4, 6])\n"
    )
    report = report_on(tmp_path, train=train)
    assert bool(report.entries) is known
    assert not known or report.entries[0].parameters == 2 * (40 * 40 + 40) + 40 * 10 + 10
